// SPDX-License-Identifier: Apache-2.0
// Gradients that become ready one after the other, under every strategy and layout: the sums are right and the same
// bits as those of one call, and what is said of steps that are wrong.
#include "runtime/gradient_reducer.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "collectives/visit_type.hpp"
#include "runtime/cross_device_ops.hpp"
#include "tests/runtime/begun_calls.hpp"
#include "tests/runtime/gradients.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

const std::vector<std::size_t> counts{7, 1000, 0, 3, 5000, 64, 1, 300};

// What a replica has for a gradient in a step: sums of them depend on the order of additions.
void fill(std::vector<float>& gradient, int which, int replica, int step) {
  for (std::size_t i = 0; i < gradient.size(); ++i)
    gradient[i] = std::sin(static_cast<float>(which * 1000 + replica * 77 + step * 13) + static_cast<float>(i));
}

class GradientReducers : public EveryLayout {
 protected:
  std::vector<int> order_ = std::vector<int>(counts.size());
};

TEST_P(GradientReducers, GiveTheBitsOfOneCallInAnyOrder) {
  GradientReducer reducer(*strategy, floats_of(counts), {.bytes = 4000, .first_bytes = 1000});
  std::iota(order_.begin(), order_.end(), 0);
  std::deque<std::vector<std::vector<float>>> kept(static_cast<std::size_t>(strategy->num_local_replicas()));
  for (int step = 0; step < 12; ++step) {
    const auto wrong = strategy->run([&](ReplicaContext& context) {
      const int me = context.replica_id_in_sync_group();
      // In steps 4 to 7 they lie elsewhere; each replica has an order of its own.
      std::vector<std::vector<float>> own;
      auto& gradients = step / 4 == 1 ? own : kept[static_cast<std::size_t>(context.local_id())];
      gradients.resize(counts.size());
      std::vector<std::vector<float>> expected(counts.size());
      for (std::size_t i = 0; i < counts.size(); ++i) {
        gradients[i].resize(counts[i]);
        fill(gradients[i], static_cast<int>(i), me, step);
        expected[i] = gradients[i];
      }
      context.all_reduce(expected, sum);
      std::vector<int> order = order_;
      std::mt19937 draw(static_cast<unsigned>(step * 100 + me));
      std::shuffle(order.begin(), order.end(), draw);
      GradientReducer::BackwardPass pass(reducer, context);
      for (const int which : order) pass.ready(which, std::span(gradients[static_cast<std::size_t>(which)]));
      pass.finish();
      int differ = 0;
      for (std::size_t i = 0; i < counts.size(); ++i) differ += gradients[i] != expected[i] ? 1 : 0;
      return differ;
    });
    for (const int each : wrong.local()) EXPECT_EQ(each, 0) << "step " << step;
    EXPECT_TRUE(reducer.is_frozen());
  }
  std::vector<int> seen = order_;
  std::mt19937 draw(0);  // as the first replica in the first step
  std::shuffle(seen.begin(), seen.end(), draw);
  for (int local = 0; local < strategy->num_local_replicas(); ++local)
    EXPECT_EQ(reducer.buckets(local), plan_buckets(reducer.gradients(), seen, {.bytes = 4000, .first_bytes = 1000}));
}

// Holds the types of two gradients, and the calls that counts need in a step of each replica.
struct CarrierCase {
  DataType first;
  DataType second;
  NamedOp op = sum;
  std::uint64_t calls_of_counts = 0;
};

TEST_P(GradientReducers, AddCountsInTheCallOfTheLastBucket) {
  constexpr std::int64_t large = 0x7edcba9876543210;
  const CarrierCase cases[] = {{DataType::f32, DataType::f32},         {DataType::f32, DataType::f32, avg},
                               {DataType::bf16, DataType::bf16},       {DataType::f32, DataType::bf16},
                               {DataType::i8, DataType::i8},           {DataType::f64, DataType::f32, avg},
                               {DataType::f32, DataType::f32, max, 1}, {DataType::i32, DataType::i32, avg, 1}};
  for (const CarrierCase& now : cases) {
    std::uint64_t calls[2] = {};
    for (const bool has_counts : {false, true}) {
      GradientReducer reducer(*strategy, {{"a", now.first, 4}, {"b", now.second, 0}, {"c", now.second, 3}},
                              {.op = now.op, .counts = has_counts ? 3U : 0U});
      for (int step = 0; step < 4; ++step) {
        std::vector<std::vector<std::byte>> memory(static_cast<std::size_t>(strategy->num_local_replicas() * 2),
                                                   std::vector<std::byte>(64));
        const std::uint64_t before = begun_calls();
        const auto sums = strategy->run([&](ReplicaContext& context) {
          const std::int64_t me = context.replica_id_in_sync_group();
          std::vector<std::int64_t> mine{10 + me, -large - me, step == 2 && me == size() - 1 ? 1 : 0};
          const auto local = static_cast<std::size_t>(context.local_id());
          GradientReducer::BackwardPass pass(reducer, context);
          const auto ready = [&](int which, DataType type, std::size_t count) {
            std::byte* const data = memory[2 * local + (which == 0 ? 0 : 1)].data();
            visit_type(type, [&]<class T>(std::type_identity<T> /*for its type*/) {
              if constexpr (!std::is_void_v<T>) pass.ready(which, std::span(reinterpret_cast<T*>(data), count));
            });
          };
          ready(2, now.second, 3);
          if (has_counts && step % 2 == 0) pass.add_counts(mine);
          ready(1, now.second, 0);
          ready(0, now.first, 4);
          if (has_counts && step % 2 == 1) pass.add_counts(mine);
          pass.finish();
          return std::tuple(mine[0], mine[1], mine[2]);
        });
        if (step == 3) calls[has_counts ? 1 : 0] = begun_calls() - before;  // Steps before it vote and learn.
        if (!has_counts) continue;
        for (int local = 0; local < strategy->num_local_replicas(); ++local) {
          EXPECT_EQ(std::get<0>(sums)[local], 10 * size() + sum_of_ids());
          EXPECT_EQ(std::get<1>(sums)[local],
                    static_cast<std::int64_t>(0 - static_cast<std::uint64_t>(large) * static_cast<unsigned>(size()) -
                                              static_cast<unsigned>(sum_of_ids())));
          EXPECT_EQ(std::get<2>(sums)[local], step == 2 ? 1 : 0);
        }
      }
    }
    EXPECT_EQ(calls[1] - calls[0], now.calls_of_counts * static_cast<unsigned>(strategy->num_local_replicas()))
        << to_string(now.first) << ' ' << to_string(now.second);
  }
}

TEST_P(GradientReducers, AddCountsWithOperationsOfTheProgram) {
  strategy.reset();
  strategy = GetParam().with(std::make_shared<ReductionToOneDevice>());
  GradientReducer reducer(*strategy, floats_of({3}), {.counts = 1});
  for (int step = 0; step < 2; ++step) {
    const auto sums = strategy->run([&](ReplicaContext& context) {
      std::vector<float> gradient(3, 1.F);
      std::int64_t examples = 5;
      GradientReducer::BackwardPass pass(reducer, context);
      pass.add_counts(std::span(&examples, 1));
      pass.ready(0, std::span(gradient));
      pass.finish();
      return examples + static_cast<std::int64_t>(gradient[2]);
    });
    EXPECT_EQ(sums[0], 6 * size());
  }
}

TEST_P(GradientReducers, RefuseWrongSteps) {
  const auto gradients = floats_of({2, 3});
  const auto said = [&](const std::function<void(GradientReducer::BackwardPass&)>& pass) {
    GradientReducer reducer(*strategy, gradients);
    const std::string words = refusal(
        [&] {
          strategy->run([&](ReplicaContext& context) {
            GradientReducer::BackwardPass step(reducer, context);
            pass(step);
            step.finish();
          });
        },
        Code::replica_failed);
    return words;
  };
  const auto has = [](const std::string& words, std::string_view part) { EXPECT_TRUE(holds(words, part)) << words; };
  has(said([](auto& step) {
        std::vector<float> gradient(2);
        step.ready(0, std::span(gradient));
      }),
      "a step ends without 1 of 2 gradients: gradient 1 ('layer1')");
  has(said([](auto& step) {
        std::vector<float> gradient(2);
        step.ready(0, std::span(gradient));
        step.ready(0, std::span(gradient));
      }),
      "gradient 0 ('layer0') is ready a second time in this step");
  has(said([](auto& step) {
        std::vector<float> gradient(4);
        step.ready(1, std::span(gradient));
      }),
      "is ready with 4 f32, and was announced with 3 f32");
  has(said([](auto& step) {
        std::vector<double> gradient(3);
        step.ready(1, std::span(gradient));
      }),
      "is ready with 3 f64, and was announced with 3 f32");
  has(said([](auto& step) {
        std::vector<float> gradient(3);
        step.ready(2, std::span(gradient));
      }),
      "gradient 2 is ready, but there are 2");
  has(said([](auto& step) {
        std::int64_t count = 1;
        step.add_counts(std::span(&count, 1));
      }),
      "a step adds 1 counts, and its reducer was made for 0");
  GradientReducer counting(*strategy, gradients, {.counts = 2});
  const auto forget = [&] {
    strategy->run([&](ReplicaContext& context) {
      std::vector<float> data(5);
      GradientReducer::BackwardPass step(counting, context);
      step.ready(1, std::span(data).first(3));
      step.ready(0, std::span(data).last(2));
      step.finish();
    });
  };
  end_calls();
  has(refusal(forget, Code::replica_failed), "a step ends without its 2 counts");
}

TEST_P(GradientReducers, WorkAgainAfterAFailure) {
  GradientReducer reducer(*strategy, floats_of({2, 3}), {.first_bytes = 1});
  int first_one = 0;
  const auto pass = [&](bool fails) {
    return strategy->run([&](ReplicaContext& context) {
      Tensor<float> first(TensorShape{2}, 1.F);
      Tensor<float> second(TensorShape{3}, 2.F);
      GradientReducer::BackwardPass step(reducer, context);
      first_one == 0 ? step.ready(0, first) : step.ready(1, second);
      if (fails && context.replica_id_in_sync_group() == context.num_replicas_in_sync() - 1)
        throw std::runtime_error("once");
      first_one == 0 ? step.ready(1, second) : step.ready(0, first);
      step.finish();
      return first[1] + second[2];
    });
  };
  for (const bool fails : {false, true, true, false, true, false}) {
    if (fails) {
      end_calls();
      EXPECT_TRUE(holds(refusal([&] { pass(true); }, Code::replica_failed), "once"));
      first_one = 1 - first_one;
    } else {
      EXPECT_EQ(pass(false)[0], 3.F * static_cast<float>(size()));
      EXPECT_EQ(reducer.buckets(), (Buckets{{first_one}, {1 - first_one}}));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(, GradientReducers, testing::ValuesIn(layouts()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
