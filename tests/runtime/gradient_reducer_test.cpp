// SPDX-License-Identifier: Apache-2.0
// Gradients that become ready one after the other: which go together, and what reducers know of their communicator.
#include "runtime/gradient_reducer.hpp"

#include <gtest/gtest.h>

#include <limits>

#include "runtime/cross_device_ops.hpp"
#include "runtime/packs.hpp"
#include "runtime/variable.hpp"
#include "tests/runtime/gradients.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

TEST(Buckets, AreFilledInOrder) {
  const auto gradients = floats_of({10, 10, 100, 1, 10});
  const std::vector<int> reversed{4, 3, 2, 1, 0};
  EXPECT_EQ(plan_buckets(gradients, reversed, {.bytes = 100, .first_bytes = 40}), (Buckets{{4}, {3}, {2}, {1, 0}}))
      << "a large one travels alone";
  EXPECT_EQ(plan_buckets(gradients, reversed, {.bytes = 40, .first_bytes = 41}), (Buckets{{4}, {3}, {2}, {1}, {0}}));
  EXPECT_EQ(plan_buckets(gradients, {2, 0, 1, 4, 3}, {}), (Buckets{{2, 0, 1, 4, 3}}));
  EXPECT_EQ(plan_buckets(gradients, {}, {}), Buckets{});
}

TEST(CountDigits, AddUpExactlyInEachType) {
  const std::vector<std::int64_t> counts{0, 1, -1, 7'777'777'777, std::numeric_limits<std::int64_t>::min(), 255};
  const DataType all[] = {DataType::i8,  DataType::u8,  DataType::i16, DataType::u16,  DataType::i32, DataType::u32,
                          DataType::i64, DataType::u64, DataType::f16, DataType::bf16, DataType::f32, DataType::f64};
  for (const DataType type : all) {
    for (const int replicas : {1, 2, 3, 100, 256, 3000}) {
      for (const bool is_narrow : {false, true}) {
        const detail::CountDigits format = detail::choose_count_digits({type}, ReduceOp::sum, replicas, is_narrow);
        std::vector<std::byte> digits(format.digits(counts.size()) * size_of(format.type));
        format.encode(counts, digits.data());
        std::vector<std::byte> sums = digits;
        const std::size_t number = format.digits(counts.size());
        for (int replica = 1; replica < replicas; ++replica)
          detail::reduce_into(ReduceOp::sum, {sums.data(), format.type, number}, {digits.data(), format.type, number});
        std::vector<std::int64_t> found(counts.size());
        format.decode(sums.data(), found);
        for (std::size_t i = 0; i < counts.size(); ++i)
          EXPECT_EQ(static_cast<std::uint64_t>(found[i]),
                    static_cast<std::uint64_t>(counts[i]) * static_cast<unsigned>(replicas))
              << to_string(type) << " of " << replicas;
      }
    }
  }
  EXPECT_EQ(detail::choose_count_digits({DataType::bf16}, ReduceOp::sum, 256, false).type, DataType::i64);
  EXPECT_EQ(detail::choose_count_digits({DataType::bf16, DataType::f32}, ReduceOp::sum, 8, false).type, DataType::f32);
  EXPECT_EQ(detail::choose_count_digits({DataType::f32}, ReduceOp::sum, 8, false).bits, 21);
  EXPECT_EQ(detail::choose_count_digits({DataType::f32}, ReduceOp::sum, 8, true).bits, 5);
}

// New communicators often have the addresses of old ones, for some replicas and not for others.
TEST(GradientReducer, KnowsANewCommunicatorWhereverItIs) {
  MirroredStrategy strategy(4, quick());
  GradientReducer reducer(strategy, floats_of({1000, 1000}), {.bytes = 1, .first_bytes = 1});
  for (int round = 0; round < 50; ++round) {
    const auto sums = strategy.run([&](ReplicaContext& context) {
      std::vector<float> a(1000, 1.F);
      std::vector<float> b(1000, 100.F);
      GradientReducer::BackwardPass step(reducer, context);
      step.ready(0, std::span(a));
      step.ready(1, std::span(b));
      step.finish();
      return std::tuple(a[7], b[7]);
    });
    EXPECT_EQ(std::get<0>(sums)[1], 4.F);
    EXPECT_EQ(std::get<1>(sums)[3], 400.F);
    const auto fail = [&] { strategy.run([] { throw std::runtime_error("once"); }); };
    refusal(fail, Code::replica_failed);
  }
}

TEST(GradientReducer, GoesByTheOperationsThatTheProgramChose) {
  StrategyOptions options = quick();
  options.cross_device_ops = std::make_shared<ReductionToOneDevice>();
  MirroredStrategy strategy(3, options);
  const auto scope = strategy.scope();
  Variable<float> weight(Tensor<float>(TensorShape{4}, 1.F), {.name = "weight"});
  GradientReducer reducer(strategy, {gradient_of(weight)}, {.op = avg});
  EXPECT_EQ(reducer.gradients()[0].name, "weight");
  for (int i = 0; i < 3; ++i) {
    const auto means = strategy.run([&](ReplicaContext& context) {
      Tensor<float> gradient(TensorShape{4}, static_cast<float>(context.local_id()));
      GradientReducer::BackwardPass step(reducer, context);
      step.ready(0, gradient);
      step.finish();
      return gradient[3];
    });
    EXPECT_EQ(means[2], 1.F);
  }
  EXPECT_NE(refusal([&] { GradientReducer(strategy, {}); }, Code::usage).find("without gradients"), std::string::npos);
}

}  // namespace
}  // namespace lockstep::test
