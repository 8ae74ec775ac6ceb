// SPDX-License-Identifier: Apache-2.0
// Tensors and structures of replicas: reduced, also along axes, gathered, and passed through run() and merge_call().
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <variant>

#include "runtime/any_tensor.hpp"
#include "runtime/cross_device_ops.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/strategy.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep {

struct Statistics {
  double loss = 0;
  Tensor<float> counts = {};
};
template <>
struct Fields<Statistics> {
  static auto of(auto& statistics) { return std::tie(statistics.loss, statistics.counts); }
};

namespace {

using test::quick;
using test::refusal;

class Reductions : public testing::TestWithParam<int> {
 protected:
  const int n = GetParam();
  MirroredStrategy strategy{n, quick()};
  // Replica i has i + 1 rows of the columns i and 10.
  PerReplica<Tensor<float>> uneven() {
    return strategy.run([](ReplicaContext& context) {
      const std::int64_t id = context.replica_id_in_sync_group();
      Tensor<float> rows(TensorShape{id + 1, 2}, 10.F);
      for (std::size_t i = 0; i < rows.size(); i += 2) rows[i] = static_cast<float>(id);
      return rows;
    });
  }
};

TEST_P(Reductions, AlongAnAxisCountEveryElementOnce) {
  const float all = static_cast<float>(n * (n + 1) / 2);  // rows
  float sum_of_first = 0;
  for (int i = 0; i < n; ++i) sum_of_first += static_cast<float>(i * (i + 1));
  EXPECT_EQ(strategy.reduce("SUM", uneven(), 0), row({sum_of_first, 10 * all}));
  EXPECT_EQ(strategy.reduce("MEAN", uneven(), -2), row({sum_of_first / all, 10.F}));
  EXPECT_EQ(strategy.reduce("MAX", uneven(), {0, 1}).item(), 10);
  EXPECT_EQ(strategy.reduce("MEAN", uneven(), {1, 0}).item(), (sum_of_first + 10 * all) / (2 * all));
  refusal([&] { strategy.reduce("SUM", uneven(), 2); }, Code::usage);
}

// Eight and six examples: the mean over fourteen.
TEST_P(Reductions, MeansOfUnequalPartsAreByTheNumberOfAll) {
  if (n != 2) return;
  const PerReplica<Tensor<float>> losses{Tensor<float>({8}, 1.F), Tensor<float>({6}, 8.F)};
  EXPECT_EQ(strategy.reduce("MEAN", losses, 0).item(), 4.F);
  const PerReplica<Tensor<float>> one_is_empty{row({2.F, 4.F}), Tensor<float>(TensorShape{0})};
  EXPECT_EQ(strategy.reduce("MEAN", one_is_empty, 0).item(), 3.F);
  EXPECT_EQ(strategy.reduce("MIN", one_is_empty, 0).item(), 2.F);
  EXPECT_EQ(strategy.reduce("SUM", one_is_empty, 0).item(), 6.F);
}

TEST_P(Reductions, KeepSmallTypesExactUntilTheEnd) {
  const auto each = [&](auto value, std::int64_t size) {
    return strategy.run([=](ReplicaContext&) { return Tensor<decltype(value)>(TensorShape{size}, value); });
  };
  EXPECT_EQ(strategy.reduce("MEAN", each(bf16(1), 1000), 0).item(), bf16(1));
  EXPECT_EQ(strategy.reduce("SUM", each(f16(1), 2050 / n), 0).item(), f16(static_cast<float>(2050 / n * n)));
  EXPECT_TRUE(std::isnan(strategy.reduce("MIN", each(std::numeric_limits<float>::quiet_NaN(), 2), 0).item()));
}

TEST_P(Reductions, GathersThatDoNotFitAreRefused) {
  const auto scalars = strategy.run([] { return Tensor<int>(1); });
  EXPECT_NE(refusal([&] { (void)strategy.gather(scalars, 0); }, Code::usage).find("gather of a scalar"),
            std::string::npos);
  EXPECT_NE(refusal([&] { (void)strategy.gather(uneven(), 5); }, Code::usage).find("there is no axis 5"),
            std::string::npos);
  if (n == 1) return;
  const std::string words = refusal([&] { (void)strategy.gather(uneven(), 1); }, Code::usage);
  EXPECT_NE(words.find("gather along axis 1: replica 1 has the shape (2, 2), replica 0 (1, 2)"), std::string::npos)
      << words;
  const auto ranks = strategy.run([](ReplicaContext& context) {
    return context.replica_id_in_sync_group() == 0 ? Tensor<int>(TensorShape{2}) : Tensor<int>(TensorShape{2, 1});
  });
  refusal([&] { (void)strategy.gather(ranks, 0); }, Code::usage);
  // It can be used again.
  EXPECT_EQ(strategy.gather(uneven(), 0).shape()[1], 2);
}

TEST_P(Reductions, OfAProgramsOwnStructAreOfItsLeaves) {
  const auto each = strategy.run([](ReplicaContext& context) {
    Statistics mine{1.0 + context.replica_id_in_sync_group(), row({1.F, 2.F})};
    context.all_reduce(mine, sum);
    return mine;
  });
  for (const Statistics& one : each.local()) {
    EXPECT_EQ(one.loss, n * (n + 1) / 2.0);
    EXPECT_EQ(one.counts, row({1.F * static_cast<float>(n), 2.F * static_cast<float>(n)}));
  }
  EXPECT_EQ(strategy.reduce("MEAN", each).loss, n * (n + 1) / 2.0);
}

TEST_P(Reductions, MergeCallPassesStructures) {
  const auto results = strategy.run([](ReplicaContext& context) {
    return context.merge_call(
        [](Strategy& all, const PerReplica<Tensor<int>>& mine) { return std::tuple(mine, all.reduce("SUM", mine)); },
        Tensor<int>(context.replica_id_in_sync_group()));
  });
  for (int i = 0; i < n; ++i) {
    EXPECT_EQ(std::get<0>(results)[i].item(), i);
    EXPECT_EQ(std::get<1>(results)[i].item(), n * (n - 1) / 2);
  }
}

INSTANTIATE_TEST_SUITE_P(, Reductions, testing::Values(1, 2, 3, 4), testing::PrintToStringParamName());

TEST(Slices, ThatAreManyAreAddedUpWhereThatIsTheSame) {
  constexpr std::int64_t huge = std::int64_t{1} << 62;
  EXPECT_TRUE(detail::goes_dense<float>(ReduceOp::avg, 2, 21, 10));
  EXPECT_TRUE(detail::goes_dense<f16>(ReduceOp::sum, 2, 21, 10));
  EXPECT_TRUE(detail::goes_dense<int>(ReduceOp::sum, 2, 21, 10));
  EXPECT_FALSE(detail::goes_dense<float>(ReduceOp::sum, 2, 20, 10));
  EXPECT_FALSE(detail::goes_dense<float>(ReduceOp::sum, 1, 21, 10));
  EXPECT_FALSE(detail::goes_dense<f16>(ReduceOp::avg, 2, 21, 10));  // could grow beyond what it can be
  EXPECT_FALSE(detail::goes_dense<int>(ReduceOp::avg, 2, 21, 10));  // each is divided
  EXPECT_FALSE(detail::goes_dense<float>(ReduceOp::sum, 2, 2, huge));
}

TEST(Slices, OfDifferentTensorsAreRefusedHoweverManyTheyAre) {
  MirroredStrategy strategy(2, quick());
  for (const std::int64_t rows : {1, 9}) {
    const auto call = [&] {
      strategy.run([&](ReplicaContext& context) {
        const std::int64_t wide = 2 + context.local_id();
        const IndexedSlices<float> mine(Tensor<float>(TensorShape({rows, wide, 5 - wide})),
                                        std::vector<std::int64_t>(static_cast<std::size_t>(rows), 1),
                                        TensorShape({4, wide, 5 - wide}));
        return context.all_reduce(mine, sum).values().size();
      });
    };
    EXPECT_NE(refusal(call, Code::replica_failed).find("of the shapes (4, 2, 3) and (4, 3, 2)"), std::string::npos);
  }
}

// The replicas' values have the same number of elements.
template <class Value>
void expect_told_apart(const Value& first, const Value& second, std::shared_ptr<CrossDeviceOps> ops = nullptr) {
  MirroredStrategy strategy(2, quick(std::move(ops)));
  const auto call = [&](auto combine) {
    const auto in_replica = [&](ReplicaContext& context) {
      Value mine = context.replica_id_in_sync_group() == 0 ? first : second;
      combine(context, mine);
    };
    const std::string words = refusal([&] { strategy.run(in_replica); }, Code::replica_failed);
    EXPECT_NE(words.find("E016"), std::string::npos) << words;
    EXPECT_NE(words.find("differ in order, shape"), std::string::npos) << words;
  };
  call([](ReplicaContext& context, Value& mine) { context.all_reduce(mine, sum); });
  if constexpr (!detail::Structure<Value>) {
    call([](ReplicaContext& context, Value& mine) { context.all_reduce_async(mine, sum).wait(); });
    call([](ReplicaContext& context, Value& mine) { context.broadcast(mine, 0); });
  }
}

TEST(ReducedStructures, OfAnotherShapeOrKeyAreAMismatch) {
  const auto ones = [](TensorShape shape) { return Tensor<float>(std::move(shape), 1.F); };
  using Numbers = std::vector<float>;
  using Map = std::map<std::string, Numbers>;
  expect_told_apart(ones({2, 3}), ones({3, 2}));
  expect_told_apart(std::tuple(Numbers(2), Numbers(4)), std::tuple(Numbers(4), Numbers(2)));
  expect_told_apart(Map{{"a", Numbers(2)}, {"b", Numbers(4)}}, Map{{"a", Numbers(2)}, {"c", Numbers(4)}});
  expect_told_apart(std::vector{Numbers(3), Numbers(3)}, std::vector{Numbers(2), Numbers(4)});
  expect_told_apart(std::pair(1.F, ones({2, 3})), std::pair(1.F, ones({3, 2})));
  const auto by_hierarchy = [] { return std::make_shared<HierarchicalCopyAllReduce>(); };
  expect_told_apart(std::pair(1.F, ones({2, 3})), std::pair(1.F, ones({3, 2})), by_hierarchy());
  expect_told_apart(Map{{"a", Numbers(2)}, {"b", Numbers(4)}}, Map{{"a", Numbers(2)}, {"c", Numbers(4)}},
                    by_hierarchy());
}

// Both travel as bytes.
TEST(AnyTensors, OfAnotherTypeAreAMismatch) {
  MirroredStrategy strategy(2, quick());
  const auto call = [](ReplicaContext& context) {
    AnyTensor mine = context.local_id() == 0 ? AnyTensor(row({true, false})) : AnyTensor(row<std::uint8_t>({1, 0}));
    context.broadcast(mine, 0);
  };
  EXPECT_NE(refusal([&] { strategy.run(call); }, Code::replica_failed).find("E016"), std::string::npos);
}

TEST(ReductionsOfOthers, AreRefusedWhereverTheyAre) {
  MirroredStrategy strategy(2, quick());
  const PerReplica<int> three{1, 2, 3};
  refusal([&] { strategy.run([](const std::vector<int>&) {}, std::vector{three}); }, Code::usage);
  refusal([&] { (void)strategy.gather(PerReplica<Tensor<int>>{row({1})}, 0); }, Code::usage);
}

}  // namespace
}  // namespace lockstep
