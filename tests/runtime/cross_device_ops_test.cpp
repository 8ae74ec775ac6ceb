// SPDX-License-Identifier: Apache-2.0
// Operations that a program chooses or writes itself, and the verbs of extended().
#include "runtime/cross_device_ops.hpp"

#include <gtest/gtest.h>

#include "runtime/default_strategy.hpp"
#include "runtime/extended.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep {
namespace {

using test::quick;
using test::refusal;

StrategyOptions with(std::shared_ptr<CrossDeviceOps> ops) {
  StrategyOptions options = quick();
  options.cross_device_ops = std::move(ops);
  return options;
}

// What is asked of it, and how often.
class Counting : public CrossDeviceOps {
 public:
  std::string describe() const override { return "Counting"; }
  int reductions = 0;

 protected:
  void reduce_implementation(ReplicaGroup& group, ReduceOp op, const Views& value) override {
    ++reductions;
    group.all_reduce(op, {value});
  }
};

using Make = std::function<std::shared_ptr<CrossDeviceOps>()>;
class EveryCrossDeviceOps : public testing::TestWithParam<std::pair<const char*, Make>> {
 protected:
  static Tensor<float> value(int replica, std::int64_t size) {
    Tensor<float> all(TensorShape{size});
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = static_cast<float>((replica + 1) * static_cast<int>(i % 50));
    return all;
  }
};

TEST_P(EveryCrossDeviceOps, combine_everybodys_values) {
  for (const int n : {1, 2, 3, 4, 6}) {
    MirroredStrategy strategy(n, with(GetParam().second()));
    for (const auto& [op, factor] : {std::pair("SUM", n * (n + 1) / 2.0), std::pair("MEAN", (n + 1) / 2.0),
                                     std::pair("MAX", 1.0 * n), std::pair("MIN", 1.0)}) {
      std::vector<std::pair<PerReplica<Tensor<float>>, CrossDeviceOps::Devices>> values;
      for (const std::int64_t size : {7, 0, 100, 1, 1000}) {
        std::deque<Tensor<float>> parts;
        for (int i = 0; i < n; ++i) parts.push_back(value(i, size));
        values.emplace_back(PerReplica(std::move(parts)), CrossDeviceOps::Devices{});
      }
      const auto results = strategy.extended().batch_reduce_to(op, values);
      ASSERT_EQ(results.size(), values.size());
      for (std::size_t i = 0; i < results.size(); ++i) {
        ASSERT_EQ(results[i].size(), n);
        Tensor<float> expected = values[i].first[0];
        for (float& each : expected) each = static_cast<float>(each * factor);
        for (const auto& each : results[i].local()) EXPECT_EQ(each, expected) << op << " of " << n << ", value " << i;
      }
      EXPECT_EQ(strategy.extended().reduce_to(op, values[2].first).value(), results[2].value());
    }
  }
}

TEST_P(EveryCrossDeviceOps, are_what_replicas_reduce_by) {
  MirroredStrategy strategy(4, with(GetParam().second()));
  const auto sums = strategy.run([](ReplicaContext& context) {
    std::pair<Tensor<float>, std::vector<double>> both{value(context.local_id(), 10), {1.0, 2.0}};
    context.all_reduce(both, sum);
    const int most = context.all_reduce(context.local_id(), max);
    return std::tuple(both.first, both.second[1] + most);
  });
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(std::get<0>(sums)[i][3], 30);
    EXPECT_EQ(std::get<1>(sums)[i], 11);
  }
  EXPECT_EQ(strategy.reduce("SUM", std::get<1>(sums)), 44);
}

INSTANTIATE_TEST_SUITE_P(
    , EveryCrossDeviceOps,
    testing::Values(std::pair("nccl", Make([] { return std::make_shared<NcclAllReduce>(); })),
                    std::pair("nccl_unpacked", Make([] { return std::make_shared<NcclAllReduce>(0); })),
                    std::pair("nccl_3", Make([] { return std::make_shared<NcclAllReduce>(3); })),
                    std::pair("hierarchical", Make([] { return std::make_shared<HierarchicalCopyAllReduce>(); })),
                    std::pair("hierarchical_2", Make([] { return std::make_shared<HierarchicalCopyAllReduce>(2); })),
                    std::pair("one_device", Make([] { return std::make_shared<ReductionToOneDevice>(); })),
                    std::pair("own", Make([] { return std::make_shared<Counting>(); })),
                    std::pair("none", Make([] { return nullptr; }))),
    [](const auto& one) { return std::string(one.param.first); });

TEST(CrossDeviceOps, of_ones_own_are_called) {
  const auto own = std::make_shared<Counting>();
  MirroredStrategy strategy(2, with(own));
  strategy.run([](ReplicaContext& context) {
    Tensor<float> value(1.F);
    context.all_reduce(value, sum);
  });
  EXPECT_EQ(own->reductions, 1);
  static_cast<void>(strategy.reduce("SUM", PerReplica<float>{1, 2}));
  EXPECT_EQ(own->reductions, 2);
  const PerReplica<Tensor<float>> value{1.F, 2.F};
  static_cast<void>(strategy.extended().batch_reduce_to<float>("SUM", {{value, {}}, {value, {}}}));
  EXPECT_EQ(own->reductions, 4) << "a batch, one after the other";
  const auto scope = strategy.scope();
  Variable v(1.F, {.aggregation = Aggregation::sum});
  strategy.run([&] { v.assign_add(1.F); });
  EXPECT_EQ(own->reductions, 5);
  EXPECT_EQ(v.read().item(), 3);
}

TEST(CrossDeviceOps, accumulate_as_one_likes) {
  const auto largest = [](ReduceOp, const Views& parts) {
    for (const View& each : parts) {
      auto* const to = static_cast<float*>(parts.front().data);
      *to = std::max(*to, *static_cast<const float*>(each.data));
    }
  };
  MirroredStrategy strategy(3, with(std::make_shared<ReductionToOneDevice>(largest)));
  EXPECT_EQ(strategy.reduce("SUM", PerReplica<float>{2, 7, 3}), 7);
}

TEST(CrossDeviceOps, results_are_where_they_are_wanted) {
  MirroredStrategy strategy(2, quick());
  const PerReplica<Tensor<float>> value{1.F, 2.F};
  const auto one = strategy.extended().reduce_to("SUM", value, {"cpu:1"});
  EXPECT_EQ(one.size(), 1);
  EXPECT_EQ(one.value().item(), 3);
  const auto both = strategy.extended().broadcast_to(Tensor<float>(5.F), strategy.devices());
  EXPECT_EQ(both, (Mirrored<Tensor<float>>{5.F, 5.F}));
  const std::string words = refusal([&] { strategy.extended().reduce_to("SUM", value, {"cpu:9"}); }, Code::usage);
  EXPECT_NE(words.find("no replica of MirroredStrategy with 2 replicas is on the destination cpu:9"), std::string::npos)
      << words;
  refusal([&] { strategy.extended().reduce_to("SUM", PerReplica<Tensor<float>>{1.F}); }, Code::usage);
  refusal([&] { strategy.extended().reduce_to("SUM", PerReplica<Tensor<float>>{1.F, row({1.F})}); }, Code::usage);
  refusal([] { NcclAllReduce(-1); }, Code::usage);
}

TEST(CrossDeviceOps, packs_are_of_equal_length_but_the_last) {
  using Packs = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(plan_packs(10, 1), (Packs{{0, 10}}));
  EXPECT_EQ(plan_packs(10, 3), (Packs{{0, 3}, {3, 6}, {6, 10}}));
  EXPECT_EQ(plan_packs(2, 3), (Packs{{0, 0}, {0, 0}, {0, 2}}));
}

TEST(CrossDeviceOps, say_once_what_really_runs) {
  const auto lines = [](std::shared_ptr<CrossDeviceOps> ops, int replicas) {
    std::vector<std::string> said;
    StrategyOptions options = with(std::move(ops));
    options.log = Log(LogLevel::info, [&](LogLevel, std::string_view line) { said.emplace_back(line); });
    MirroredStrategy strategy(replicas, options);
    for (int i = 0; i < 2; ++i) {
      std::deque<float> ones(static_cast<std::size_t>(replicas), 1.F);
      static_cast<void>(strategy.reduce("SUM", PerReplica<float>(ones)));
    }
    EXPECT_EQ(said.size(), 2U);
    return said.back();
  };
  EXPECT_NE(lines(std::make_shared<NcclAllReduce>(2), 2).find("NcclAllReduce in 2 packs: no replica is on a GPU"),
            std::string::npos);
  EXPECT_NE(lines(std::make_shared<HierarchicalCopyAllReduce>(), 4).find("two groups of 2 replicas"),
            std::string::npos);
  EXPECT_NE(lines(std::make_shared<HierarchicalCopyAllReduce>(0), 3).find("3 go as one"), std::string::npos);
  EXPECT_NE(lines(std::make_shared<ReductionToOneDevice>(), 2).find("Reduce to replica 0 then broadcast to all."),
            std::string::npos);
}

TEST(ExtendedVerbs, say_where_things_are) {
  CentralStorageStrategy central(2, quick());
  MirroredStrategy mirrored(2, quick());
  EXPECT_EQ(central.extended().worker_devices().size(), 2U);
  EXPECT_EQ(central.extended().parameter_devices().size(), 1U);
  EXPECT_EQ(mirrored.extended().parameter_devices(), mirrored.devices());
  const auto scope = mirrored.scope();
  Variable v(1.F);
  EXPECT_EQ(mirrored.extended().devices_of(v), mirrored.devices());
  EXPECT_TRUE(mirrored.extended().variable_created_in_scope(v));
  EXPECT_FALSE(central.extended().variable_created_in_scope(v));
  EXPECT_TRUE(mirrored.extended().should_checkpoint() && mirrored.extended().should_save_summary());
  mirrored.extended().update(
      v, [](Variable<float>& part, float by) { part.assign(by); }, 4.F);
  EXPECT_EQ(v.read().item(), 4);
  EXPECT_EQ(mirrored.extended().call_for_each_replica([](ReplicaContext& context) { return context.local_id(); }),
            (PerReplica<int>{0, 1}));
}

}  // namespace
}  // namespace lockstep
