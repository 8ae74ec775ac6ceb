// SPDX-License-Identifier: Apache-2.0
// What goes wrong in one level is named on all members, and nobody waits in vain.
#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <future>
#include <tuple>

#include "tests/collectives/communicator/gpu_level_cases.hpp"
#include "tests/support/holds.hpp"

namespace lockstep::test {
namespace {

enum class Fault : std::uint8_t { nccl, copy, memory };

// Who fails, at what, and how often that has been right before.
using Case = std::tuple<int, Fault, int>;
class FaultyLevels : public OwnGpus, public testing::WithParamInterface<Case> {
 protected:
  static void tell(int more) {
    switch (std::get<Fault>(GetParam())) {
      case Fault::nccl:
        return FakeNccl::fail_after(more);
      case Fault::copy:
        return FakeGpus::fail_copy_after(more);
      case Fault::memory:
        return FakeGpus::fail_allocation_after(more);
    }
  }
  void check(const LayoutOfGpus& layout) {
    const auto [who, fault, more] = GetParam();
    std::atomic<int> refused = 0;
    std::atomic<int> begun = 0;
    with_layout(layout, [&, who = who, more = more](Communicator& world, int device) {
      DeviceVector<float> mine(std::vector<float>(count, 1), device);
      DeviceVector<float> part(count / 5, device);
      const bool is_mine = world.rank() == who;
      try {
        if (is_mine) tell(more);
        for (int turn = 0; turn < 3; ++turn) {
          world.all_reduce(mine, avg);
          world.reduce_scatter(mine, part, sum);
          world.reduce(mine, sum, layout.size() - 1);
        }
        world.barrier();  // where those hear of it who had ended before
      } catch (const Error& error) {
        EXPECT_EQ(error.code() == Code::peer_failed, !is_mine) << error.what();
        EXPECT_TRUE(holds(error.what(), "unhandled system error") || holds(error.what(), "it fell off the bus") ||
                    holds(error.what(), "none left"))
            << error.what();
        EXPECT_TRUE(world.failed());
        ++refused;
      }
      if (is_mine) tell(-1);
      ++begun;
    });
    EXPECT_EQ(begun, layout.size());
    // Where it came to that.
    EXPECT_TRUE(refused == layout.size() || refused == 0) << refused;
  }
};

std::string name_of(const testing::TestParamInfo<Case>& each) {
  const auto [who, fault, more] = each.param;
  constexpr std::array<std::string_view, 3> names = {"nccl", "copy", "memory"};
  return text("member_", who, '_', names[static_cast<std::size_t>(fault)], "_after_", more);
}

INSTANTIATE_TEST_SUITE_P(Members, FaultyLevels,
                         testing::Combine(testing::Values(0, 4),
                                          testing::Values(Fault::nccl, Fault::copy, Fault::memory),
                                          testing::Values(0, 1, 3, 8)),
                         name_of);

TEST_P(FaultyLevels, AreNamedOnAllThatShareGpus) { check({"shared", {0, 0, 1, 1, 1}}); }

class LevelsOf : public OwnGpus, public testing::WithParamInterface<LayoutOfGpus> {};

INSTANTIATE_TEST_SUITE_P(Layouts, LevelsOf,
                         testing::Values(LayoutOfGpus{"shared", {0, 0, 1, 1, 1}},
                                         LayoutOfGpus{"nodes", {0, 0, 1, 2}, {3, 1}}),
                         [](const auto& each) { return each.param.name; });

TEST_P(LevelsOf, SetTheOthersFreeWhenAMemberEndsEarly) {
  for (int leaver = 0; leaver < GetParam().size(); ++leaver) {
    std::atomic<int> freed = 0;
    with_layout(GetParam(), [&](Communicator& world, int device) {
      DeviceVector<int> mine(std::vector<int>(count, 1), device);
      world.all_reduce(mine, sum);
      try {
        Communicator part = world.duplicate("part");
        for (int turn = 0; turn < 4; ++turn) {
          if (turn == 2 && world.rank() == leaver) throw std::runtime_error("enough");
          part.all_reduce(mine, sum);
        }
      } catch (const Error&) {
        ++freed;
      } catch (const std::runtime_error&) {
        ++freed;
      }
    });
    EXPECT_EQ(freed, GetParam().size());
  }
}

// CUDA would wait for all that is on the GPU: what a longer call does not fit into stays until the end.
TEST_P(LevelsOf, FreeNothingBetweenCallsThatGrow) {
  with_layout(GetParam(), [&](Communicator& world, int device) {
    std::deque<DeviceVector<int>> all;
    for (const int many : {1, 3, 10}) all.emplace_back(counting(count * static_cast<std::size_t>(many), 0), device);
    DeviceVector<int> part(count, device);
    gpus().costs(device);  // measured once, in memory that is freed
    world.all_reduce(all[0], avg);
    world.barrier();
    const int before = gpus().frees();
    world.barrier();
    for (DeviceVector<int>& mine : all) {
      world.all_reduce(mine, avg);
      world.all_reduce(mine, premul_sum(2));
      world.reduce(mine, sum, world.size() - 1);
      world.reduce_scatter(mine.span().first(mine.size() / count * static_cast<std::size_t>(world.size())),
                           part.span().first(mine.size() / count), sum);
    }
    world.barrier();
    EXPECT_EQ(gpus().frees(), before);
    world.barrier();
  });
}

// What is before it in a member's stream does not end.
TEST_P(LevelsOf, WaitForAStreamToTheLimit) {
  std::atomic<int> refused = 0;
  with_layout(GetParam(), [&](Communicator& world, int device) {
    DeviceVector<int> mine(std::vector<int>(count, 1), device);
    world.on(nullptr).all_reduce(mine, sum);
    const Stream stream(gpus(), device);
    std::promise<void> gate;
    if (world.rank() == 1) stream.put([opened = gate.get_future().share()] { opened.wait(); });
    world.set_timeout(std::chrono::milliseconds(300));
    try {
      world.on(stream.get()).all_reduce_async(mine, sum).wait();
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Code::stall || error.code() == Code::peer_failed) << error.what();
      ++refused;
    }
    gate.set_value();
  });
  EXPECT_EQ(refused, GetParam().size());
}

}  // namespace
}  // namespace lockstep::test
