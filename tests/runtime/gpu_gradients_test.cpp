// SPDX-License-Identifier: Apache-2.0
// Gradients in the memory of GPUs: combined by NCCL while others are made, behind the streams that make them.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

#include "runtime/cross_device_ops.hpp"
#include "runtime/gradient_reducer.hpp"
#include "tests/runtime/gpu_replicas.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

// Within some seconds.
template <class What>
bool comes_true(const What& what) {
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  while (!what() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  return what();
}

TEST_F(GpuStrategies, ReduceGradientsByNcclWhileTheyBecomeReady) {
  MirroredStrategy strategy(three, quick());
  const std::vector<std::size_t> counts{3000, 10, 0, 777};
  std::vector<GradientSpec> specs;
  for (const std::size_t count : counts) specs.push_back({text("layer", specs.size()), DataType::f32, count});
  GradientReducer reducer(strategy, specs, {.bytes = 4000, .first_bytes = 1000});
  std::deque<std::deque<DeviceVector<float>>> gradients(3);
  for (int step = 0; step < 3; ++step) {
    const int before = nccl().operations();
    strategy.run([&](ReplicaContext& context) {
      auto& mine = gradients[static_cast<std::size_t>(context.local_id())];
      if (mine.empty())
        for (const std::size_t count : counts) mine.emplace_back(count, FakeGpus::used());
      GradientReducer::BackwardPass pass(reducer, context);
      for (int i = 3; i >= 0; --i) {
        DeviceVector<float>& each = mine[static_cast<std::size_t>(i)];
        each.copy_from(values_of(context.replica_id_in_sync_group(), each.size()));
        pass.ready(i, each.span());
      }
      pass.finish();
    });
    EXPECT_GT(nccl().operations(), before) << step;
    for (const auto& mine : gradients) {
      for (std::size_t i = 0; i < counts.size(); ++i)
        EXPECT_EQ(on_host(mine[i]), sums_on_processors(3, counts[i])) << step << ' ' << i;
    }
  }
}

// The digits of the counts lie beside the gradients, so that these need not come to the host.
TEST_F(GpuStrategies, AddCountsBesideGradientsOnGpus) {
  MirroredStrategy strategy(three, quick());
  const std::vector<float> right = sums_on_processors(3, 3000);
  int operations[2] = {};
  for (const bool has_counts : {false, true}) {
    GradientReducer reducer(strategy, {{"layer", DataType::f32, 3000}}, {.counts = has_counts ? 2U : 0U});
    for (int step = 0; step < 3; ++step) {
      const int before = nccl().operations();
      const auto counts = strategy.run([&](ReplicaContext& context) {
        const int me = context.replica_id_in_sync_group();
        DeviceVector<float> gradient(values_of(me, 3000), FakeGpus::used());
        std::vector<std::int64_t> mine{1'000'000'000'000 + me, -1};
        GradientReducer::BackwardPass pass(reducer, context);
        if (has_counts) pass.add_counts(mine);
        pass.ready(0, gradient.span());
        pass.finish();
        EXPECT_EQ(on_host(gradient), right) << step;
        return std::pair(mine[0], mine[1]);
      });
      operations[has_counts ? 1 : 0] = nccl().operations() - before;
      if (!has_counts) continue;
      EXPECT_EQ(std::get<0>(counts)[1], 3'000'000'000'003);
      EXPECT_EQ(std::get<1>(counts)[2], -3);
    }
  }
  EXPECT_GT(operations[0], 0);
  EXPECT_GE(operations[1], operations[0]);
}

// Each is made in a stream of the program's, an ordinary one or one apart from the default one, and combined behind
// that. What is put there later goes on meanwhile: the other replica begins only when it has.
TEST_F(GpuStrategies, ReduceGradientsBesideTheStreamThatMakesThem) {
  for (const bool by_own_ops : {false, true}) {
    MirroredStrategy strategy({"gpu:0", "gpu:1"},
                              by_own_ops ? quick(std::make_shared<ReductionToOneDevice>()) : quick());
    const std::vector<float> right = sums_on_processors(2, 3000);
    GradientReducer reducer(strategy,
                            {{"a", DataType::f32, 3000}, {"b", DataType::f32, 3000}, {"c", DataType::f32, 3000}},
                            {.bytes = 24'000, .first_bytes = 1});
    std::deque<std::deque<DeviceVector<float>>> gradients(2);
    std::atomic<int> gone_on = 0;
    const auto goes_on = [&] { return comes_true([&] { return gone_on == 2; }); };
    for (int step = 0; step < 6; ++step) {
      strategy.run([&](ReplicaContext& context) {
        const int me = context.local_id();
        auto& mine = gradients[static_cast<std::size_t>(me)];
        while (mine.size() < 3) mine.emplace_back(3000, FakeGpus::used());
        const OrdinaryStream ordinary(gpus(), FakeGpus::used());
        const OwnStream apart(gpus(), FakeGpus::used());
        const OwnStream& stream = step % 2 == 0 ? ordinary : apart;
        const bool looks = step >= 4 && !by_own_ops;  // nobody asks any more
        for (DeviceVector<float>& each : mine) each.copy_from(values_of(9, 3000));
        gone_on = 0;
        context.merge_call([](Strategy&, const PerReplica<int>&) {}, 0);
        GradientReducer::BackwardPass pass(reducer, context);
        if (looks && me == 1) {
          EXPECT_TRUE(goes_on());
        }
        for (int i = 2; i >= 0; --i) {
          DeviceVector<float>& each = mine[static_cast<std::size_t>(i)];
          const auto make = [&, i] {
            std::this_thread::sleep_for(std::chrono::milliseconds((i == 1) != by_own_ops ? 6 : 2));
            each.copy_from(values_of(me, 3000));
          };
          if (i == 1) {
            gpus().put(nullptr, make);
            pass.ready(i, each.span());
          } else {
            stream.put(make);
            pass.ready(i, each.span(), stream.get());
          }
          if (i == 2 && me == 0) {
            stream.put([&] { ++gone_on; });
            gpus().put(nullptr, [&] { ++gone_on; });
            EXPECT_TRUE(goes_on());
          }
        }
        pass.finish();
      });
      for (const auto& mine : gradients) {
        for (const auto& each : mine) EXPECT_EQ(on_host(each), right) << step;
      }
    }
  }
}

TEST(GpuStrategiesWithoutGpus, HaveNoStreamThatGradientsAreReadyIn) {
  if (gpu::backend() != nullptr) GTEST_SKIP() << lacks("needs a machine without a GPU");
  MirroredStrategy strategy(1, quick());
  GradientReducer reducer(strategy, {{"layer", DataType::f32, 4}});
  const std::string words = refusal(
      [&] {
        strategy.run([&](ReplicaContext& context) {
          std::vector<float> here(4);
          GradientReducer::BackwardPass pass(reducer, context);
          pass.ready(0, std::span(here), gpu::Stream{});
        });
      },
      {Code::usage, Code::replica_failed});
  EXPECT_NE(words.find("a gradient is ready in a stream of a GPU, but " + gpu::why_none()), std::string::npos) << words;
}

// Where one replica's gradient is found elsewhere than all have agreed on, the others hear of it.
TEST_F(GpuStrategies, RefuseGradientsThatLeaveTheirGpu) {
  MirroredStrategy strategy(three, quick());
  GradientReducer reducer(strategy, {{"layer", DataType::f32, 3000}});
  const auto step = [&](bool leaves) {
    strategy.run([&](ReplicaContext& context) {
      DeviceVector<float> there(values_of(context.local_id(), 3000), FakeGpus::used());
      std::vector<float> here(3000);
      GradientReducer::BackwardPass pass(reducer, context);
      pass.ready(0, leaves && context.local_id() == 1 ? std::span(here) : there.span());
      pass.finish();
    });
  };
  for (int i = 0; i < 3; ++i) step(false);
  const std::string words = refusal([&] { step(true); }, Code::replica_failed);
  EXPECT_NE(words.find("replica 1 of 3"), std::string::npos) << words;
  EXPECT_NE(words.find("is elsewhere now"), std::string::npos) << words;
  for (int i = 0; i < 3; ++i) step(false);
}

}  // namespace
}  // namespace lockstep::test
