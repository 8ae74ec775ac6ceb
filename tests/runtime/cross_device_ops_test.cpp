// SPDX-License-Identifier: Apache-2.0
// Operations that a program chooses or writes itself, and the verbs of extended().
#include <algorithm>

#include "runtime/cross_device_ops.hpp"

#include <gtest/gtest.h>

#include "runtime/default_strategy.hpp"
#include "runtime/extended.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep {
namespace {

using test::holds;
using test::quick;
using test::refusal;

StrategyOptions with(std::shared_ptr<CrossDeviceOps> ops) {
  StrategyOptions options = quick();
  options.cross_device_ops = std::move(ops);
  return options;
}

// Counts its calls.
class Counting : public CrossDeviceOps {
 public:
  std::string describe() const override { return "Counting"; }
  int reductions = 0;
  int broadcasts = 0;
  int gathers = 0;

 protected:
  void reduce_implementation(ReplicaGroup& group, ReduceOp op, const TensorViews& value) override {
    ++reductions;
    group.all_reduce(op, {value});
  }
  void broadcast_implementation(ReplicaGroup& group, const TensorView& value, const TensorViews& copies) override {
    ++broadcasts;
    CrossDeviceOps::broadcast_implementation(group, value, copies);
  }
  void gather_implementation(ReplicaGroup& group, const TensorViews& value, const std::vector<std::size_t>& counts,
                             const TensorView& all) override {
    ++gathers;
    CrossDeviceOps::gather_implementation(group, value, counts, all);
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

TEST_P(EveryCrossDeviceOps, CombineEverybodysValues) {
  for (const int n : {1, 2, 3, 4, 6}) {
    MirroredStrategy strategy(n, with(GetParam().second()));
    for (const auto& [op, factor] : {std::pair("SUM", n * (n + 1) / 2.0), std::pair("MEAN", (n + 1) / 2.0),
                                     std::pair("MAX", 1.0 * n), std::pair("MIN", 1.0)}) {
      std::vector<std::pair<PerReplica<Tensor<float>>, Destinations>> values;
      for (const std::int64_t size : {7, 0, 100, 1, 1000}) {
        std::deque<Tensor<float>> parts;
        for (int i = 0; i < n; ++i) parts.push_back(value(i, size));
        values.emplace_back(PerReplica(std::move(parts)), Destinations());
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

TEST_P(EveryCrossDeviceOps, ServesReductionsInReplicas) {
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

// They are gathered, whatever combines the other leaves.
TEST_P(EveryCrossDeviceOps, LeaveSlicesInStructuresAsTheyAre) {
  MirroredStrategy strategy(2, with(GetParam().second()));
  const auto found = strategy.run([](ReplicaContext& context) {
    const auto id = static_cast<float>(context.local_id());
    std::tuple mixed(id + 1, IndexedSlices<float>(row({id + 1}), {context.local_id()}, {3}), row({2.F, id}));
    context.all_reduce(mixed, sum, {.bytes_per_pack = 4});
    std::vector alone{std::get<1>(mixed)};
    context.all_reduce(alone, avg);
    return std::tuple(mixed, alone[0]);
  });
  for (const auto& [mixed, alone] : strategy.local_results(found)) {
    EXPECT_EQ(mixed, std::tuple(3.F, IndexedSlices<float>(row({1.F, 2.F}), {0, 1}, {3}), row({4.F, 1.F})));
    EXPECT_EQ(alone, IndexedSlices<float>(row({0.5F, 1.F, 0.5F, 1.F}), {0, 1, 0, 1}, {3}));
  }
  const IndexedSlices<float> one(row({2.F, 4.F}), {2, 0}, {3});
  EXPECT_EQ(strategy.extended().reduce_to("MEAN", PerReplica<IndexedSlices<float>>{one, one}, {"cpu:1"}).value(),
            IndexedSlices<float>(row({1.F, 2.F, 1.F, 2.F}), {2, 0, 2, 0}, {3}));
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

TEST(CrossDeviceOps, OfOnesOwnAreCalled) {
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

TEST(CrossDeviceOps, OfOnesOwnBroadcastAndGather) {
  const auto own = std::make_shared<Counting>();
  MirroredStrategy strategy(2, with(own));
  EXPECT_EQ(strategy.extended().broadcast_to(row({1.F, 2.F}), {"cpu:1"}).value(), row({1.F, 2.F}));
  EXPECT_EQ(own->broadcasts, 1);
  const PerReplica<Tensor<float>> parts{row({1.F}), row({2.F, 3.F})};
  EXPECT_EQ(strategy.gather(parts, 0), row({1.F, 2.F, 3.F}));
  EXPECT_EQ(own->gathers, 1);
  const auto both = own->gather(strategy, parts, {}, 0);
  EXPECT_EQ(both, (Mirrored<Tensor<float>>{row({1.F, 2.F, 3.F}), row({1.F, 2.F, 3.F})}));
  EXPECT_EQ(own->gathers, 2);
  EXPECT_EQ(own->broadcasts, 2);
}

TEST(CrossDeviceOps, GoToTheDevicesOfAVariableOrAValue) {
  MirroredStrategy mirrored(2, quick());
  CentralStorageStrategy central(2, quick());
  const PerReplica<Tensor<float>> value{1.F, 2.F};
  const auto copies_for_variable = [&](Strategy& strategy) {
    const Scope scope = strategy.scope();
    const Variable v(1.F);
    return strategy.extended().reduce_to("SUM", value, v).size();
  };
  EXPECT_EQ(copies_for_variable(mirrored), 2);
  EXPECT_EQ(copies_for_variable(central), 1) << "it is in the host's memory alone";
  EXPECT_EQ(mirrored.extended().broadcast_to(Tensor<float>(5.F), value), (Mirrored<Tensor<float>>{5.F, 5.F}));
  EXPECT_NE(refusal([&] { mirrored.extended().reduce_to("SUM", value, PerReplica<float>{1}); }, Code::usage)
                .find("a PerReplica of 1 values in a strategy with 2 replicas"),
            std::string::npos);
  EXPECT_NE(refusal([&] { mirrored.extended().reduce_to("SUM", value, std::vector<std::string>()); }, Code::usage)
                .find("destinations can not be empty"),
            std::string::npos);
}

TEST(CrossDeviceOps, AccumulateOnADeviceOfOnesChoice) {
  std::vector<std::string> said;
  StrategyOptions options = with(std::make_shared<ReductionToOneDevice>("cpu:1"));
  options.log = Log(LogLevel::info, [&](LogLevel, std::string_view line) { said.emplace_back(line); });
  MirroredStrategy strategy(3, options);
  EXPECT_EQ(strategy.reduce("SUM", PerReplica<float>{2, 7, 3}), 12);
  ASSERT_EQ(said.size(), 2U);
  const std::string device = "/job:localhost/replica:0/task:0/device:CPU:";
  EXPECT_NE(said[1].find("Reduce to " + device + "1 then broadcast to ('" + device + "0', '" + device + "1', '" +
                         device + "2')."),
            std::string::npos)
      << said[1];
  MirroredStrategy wrong(2, with(std::make_shared<ReductionToOneDevice>("cpu:7")));
  EXPECT_NE(refusal(
                [&] {
                  wrong.reduce("SUM", PerReplica<float>{2, 7});
                },
                Code::usage)
                .find("no replica of MirroredStrategy with 2 replicas is on the device cpu:7"),
            std::string::npos);
  EXPECT_EQ(strategy.reduce("MAX", PerReplica<float>{2, 7, 3}), 7) << "it goes on";
  refusal([] { ReductionToOneDevice("the_first"); }, Code::usage);
  refusal([] { ReductionToOneDevice(""); }, Code::usage);
}

TEST(CrossDeviceOps, GatherToDevices) {
  MirroredStrategy strategy(2, quick());
  NcclAllReduce ops;
  const auto all = ops.gather(strategy, PerReplica<Tensor<float>>{row({1.F}), row({2.F, 3.F})}, {"cpu:1"}, 0);
  EXPECT_EQ(all.size(), 1);
  EXPECT_EQ(all.value(), row({1.F, 2.F, 3.F}));
}

// Each level moves what it must, and who adds up changes from value to value.
TEST(CrossDeviceOps, CountTheBytesOfEachLevel) {
  const auto ops = std::make_shared<HierarchicalCopyAllReduce>(0);
  StrategyOptions options = with(ops);
  options.pin = false;  // wherever the system likes: one level
  MirroredStrategy strategy(3, options);
  const PerReplica<Tensor<float>> value{Tensor<float>(TensorShape{10}), Tensor<float>(TensorShape{10}),
                                        Tensor<float>(TensorShape{10})};
  strategy.extended().reduce_to("SUM", value);
  EXPECT_EQ(ops->traffic(), (std::vector<HierarchicalCopyAllReduce::LevelTraffic>{{"process", 2 * 2 * 40}}));
  strategy.extended().batch_reduce_to<float>("MEAN", {{value, {}}, {value, {}}});
  EXPECT_EQ(ops->traffic().front().bytes, 3 * 2 * 2 * 40U);
  // What is lost beside a large number is not where the large ones meet first.
  const PerReplica<Tensor<float>> great{1e10F, 1.F, -1e10F};
  const auto sums = strategy.extended().batch_reduce_to<float>("SUM", {{great, {}}, {great, {}}, {great, {}}});
  EXPECT_EQ(sums[2].value().item(), 0) << "the last value is the first one of the batch: at replica 0";
  EXPECT_EQ(sums[0].value().item(), 1) << "the third one at replica 2, to which the first comes first";
}

TEST(CrossDeviceOps, ResultsAreWhereTheyAreWanted) {
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

TEST(CrossDeviceOps, PacksAreOfEqualLengthButTheLast) {
  using Packs = std::vector<std::pair<std::size_t, std::size_t>>;
  EXPECT_EQ(plan_packs(10, 1), (Packs{{0, 10}}));
  EXPECT_EQ(plan_packs(10, 3), (Packs{{0, 3}, {3, 6}, {6, 10}}));
  EXPECT_EQ(plan_packs(2, 3), (Packs{{0, 0}, {0, 0}, {0, 2}}));
}

TEST(CrossDeviceOps, LogTheirImplementationOnce) {
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
  EXPECT_NE(lines(std::make_shared<HierarchicalCopyAllReduce>(), 4).find("in 1 pack: replicas meet by "),
            std::string::npos);
  EXPECT_NE(lines(std::make_shared<ReductionToOneDevice>(), 2)
                .find("Reduce to /job:localhost/replica:0/task:0/device:CPU:0 then broadcast to ("),
            std::string::npos);
  EXPECT_EQ(lines(std::make_shared<ReductionToOneDevice>(), 1),
            "Reduce to /job:localhost/replica:0/task:0/device:CPU:0 then broadcast to "
            "('/job:localhost/replica:0/task:0/device:CPU:0',).");
}

TEST(ExtendedVerbs, SayWhereThingsAre) {
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
  EXPECT_NE(refusal([&] { static_cast<void>(central.extended().colocate_vars_with(v)); }, Code::usage)
                .find("colocate_vars_with of CentralStorageStrategy with 2 replicas with a variable of Mirrored"),
            std::string::npos);
  EXPECT_TRUE(mirrored.extended().should_checkpoint() && mirrored.extended().should_save_summary());
  mirrored.extended().update(
      v, [](Variable<float>& part, float by) { part.assign(by); }, 4.F);
  EXPECT_EQ(v.read().item(), 4);
  EXPECT_EQ(mirrored.extended().call_for_each_replica([](ReplicaContext& context) { return context.local_id(); }),
            (PerReplica<int>{0, 1}));
}

// Variables that are synchronised on read have a part in each replica, where other variables have one for all.
TEST(ExtendedVerbs, KeepVariablesBesideOthers) {
  CentralStorageStrategy strategy(2, quick());
  Extended extended = strategy.extended();
  const Scope scope = strategy.scope();
  const Variable shared(0.F);
  const Variable metric(0.F, {.name = "metric", .synchronization = Synchronization::on_read});
  EXPECT_EQ(extended.devices_of(shared).size(), 1U);
  EXPECT_EQ(extended.devices_of(metric), strategy.devices());
  {
    const auto beside = extended.colocate_vars_with(metric);
    Variable slot(0.F);
    EXPECT_EQ(extended.devices_of(slot), strategy.devices());
    const Variable<float> made = strategy.run([] { return Variable(0.F); });
    EXPECT_EQ(extended.devices_of(made), strategy.devices());
    const auto within = extended.colocate_vars_with(shared);
    EXPECT_EQ(extended.devices_of(Variable(0.F)).size(), 1U);
    EXPECT_PRED2(holds, refusal([] { Variable(0.F, {.synchronization = Synchronization::on_read}); }, Code::usage),
                 "needs a part in each replica");
    strategy.run([&](ReplicaContext& context) { slot.assign(static_cast<float>(context.local_id())); });
    EXPECT_EQ(slot.parts(), (std::vector<Tensor<float>>{0.F, 1.F}));
  }
  EXPECT_EQ(extended.devices_of(Variable(0.F)).size(), 1U);
}

TEST(ExtendedVerbs, UpdateNonSlotValues) {
  CentralStorageStrategy central(2, quick());
  MirroredStrategy mirrored(2, quick());
  std::vector<Variable<float>> all;
  int calls = 0;
  const auto once = [&](const Destinations& at) {
    calls = 0;
    const auto found = mirrored.extended().update_non_slot(
        at,
        [&](float value, int own) {
          ++calls;
          EXPECT_TRUE(in_cross_replica_context());
          return value + static_cast<float>(own);
        },
        2.F, PerReplica<int>{10, 20});
    EXPECT_EQ(calls, found.size());
    return found;
  };
  EXPECT_EQ(once({"cpu:1"}), PerReplica<float>{22});
  EXPECT_EQ(once(mirrored.extended().non_slot_devices(all)), (PerReplica<float>{12, 22}));
  EXPECT_EQ(central.extended().non_slot_devices(all).size(), 1U);
  const auto in_scope = [&](Strategy& strategy) {
    const Scope scope = strategy.scope();
    once({"cpu:0"});
  };
  in_scope(mirrored);
  EXPECT_EQ(calls, 1);
  EXPECT_NE(refusal([&] { in_scope(central); }, Code::usage).find("mixing different strategies"), std::string::npos);
  EXPECT_EQ(calls, 0);
  // What is changed there is one replica's part.
  const Scope scope = mirrored.scope();
  Variable v(1.F);
  mirrored.extended().update_non_slot({"cpu:1"}, [&] { v.assign(5.F); });
  EXPECT_EQ(v.parts(), (std::vector<Tensor<float>>{1.F, 5.F}));
}

}  // namespace
}  // namespace lockstep
