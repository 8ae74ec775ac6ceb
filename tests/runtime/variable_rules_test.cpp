// SPDX-License-Identifier: Apache-2.0
// What variables refuse, how they are printed, and what differs between replicas' parts.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <sstream>
#include <thread>

#include "runtime/cross_device_ops.hpp"
#include "runtime/default_strategy.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/runtime/variable_case.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep {
namespace {

using test::holds;
using test::on_read;
using test::quick;
using test::refusal;
using test::rows;
using test::written;

TEST(Variable, OfNoStrategyIsPlain) {
  Variable v(1.F);
  EXPECT_EQ(&v.strategy(), &default_strategy());
  v.assign_add(2.F);
  EXPECT_EQ(v.read().item(), 3);
  v.local()[0] = 4;
  EXPECT_EQ(v.read().item(), 4);
  get_strategy().run([&] { v.assign_add(1.F); });
  EXPECT_EQ(v.read().item(), 5);
  EXPECT_EQ(v.to_string(), "<tf.Variable 'Variable:0' shape=() dtype=float32, numpy=5.0>");
}

TEST(Variable, MadeOutsideOfTheScopeIsNotChangedByReplicas) {
  MirroredStrategy strategy(2, quick());
  Variable v(1.F);
  const auto seen = strategy.run([&] { return v.read().item(); });
  EXPECT_EQ(seen, (PerReplica<float>{1, 1}));
  const std::string words = refusal([&] { strategy.run([&] { v.assign(2.F); }); }, Code::replica_failed);
  EXPECT_NE(words.find("was made outside of its scope"), std::string::npos) << words;
  refusal([&] { strategy.run([&] { v.local()[0] = 1; }); }, Code::replica_failed);
  const Scope scope = strategy.scope();
  v.assign(3.F);
  EXPECT_EQ(v.read().item(), 3);
}

TEST(Variable, OfAnotherStrategyIsRefused) {
  MirroredStrategy one(2, quick());
  MirroredStrategy other(1, quick());
  const auto make = [](Strategy& strategy) {
    const Scope scope = strategy.scope();
    return Variable<float>(Tensor<float>(1.F));
  };
  Variable<float> v = make(one);
  v.assign(2.F);  // outside of all scopes its own is meant
  EXPECT_EQ(v.read().item(), 2);
  const Scope scope = other.scope();
  EXPECT_NE(refusal([&] { v.assign(3.F); }, Code::usage).find("mixing different strategies"), std::string::npos);
}

TEST(Variable, IsSavedAndCheckedForAllReplicasOnly) {
  MirroredStrategy strategy(2, quick());
  const Scope scope = strategy.scope();
  Variable v(1.F, written(Aggregation::sum));
  const auto refused_in_update = [&](auto&& call) {
    return refusal([&] { strategy.update(v, [&](Variable<float>&) { call(); }); }, Code::usage);
  };
  EXPECT_NE(refused_in_update([&] { v.restore(2.F); }).find("restore of variable 'v' is for all replicas"),
            std::string::npos);
  refused_in_update([&] { static_cast<void>(v.saved()); });
  refused_in_update([&] { v.check_sync(); });
  refused_in_update([&] { strategy.update(v, [](Variable<float>&) {}); });
  EXPECT_EQ(v.read().item(), 1);
  Variable<int> whole(Tensor<int>({2}, {6, 8}));
  refusal([&] { whole.scatter_div({row({2, 0}), {0, 1}, {2}}); }, Code::usage);
  EXPECT_EQ(whole.read(), row({6, 8})) << "nothing, or all of it";
}

// Outside of a run, update() is no part of one.
TEST(Variable, UpdatesDoNotReduceInTheMiddleOfAnothersRun) {
  MirroredStrategy strategy(2, quick());
  const Scope scope = strategy.scope();
  Variable v(1.F, written(Aggregation::sum));
  std::string words;
  strategy.run([&](ReplicaContext& context) {
    if (context.local_id() != 0) return;
    std::thread([&] {
      const auto reduce = [&](Variable<float>&) { static_cast<void>(strategy.reduce("SUM", PerReplica<int>{1, 1})); };
      words = refusal([&] { strategy.update(v, reduce); }, Code::usage);
    }).join();
  });
  EXPECT_NE(words.find("while it runs"), std::string::npos) << words;
}

TEST(Variable, UseAfterItsStrategyIsRefused) {
  std::optional<Variable<float>> v;
  {
    MirroredStrategy strategy(2, quick());
    const Scope scope = strategy.scope();
    v.emplace(Tensor<float>(1.F), VariableOptions{.name = "late"});
  }
  EXPECT_NE(refusal([&] { (void)v->read(); }, Code::usage).find("variable 'late' has outlived its strategy"),
            std::string::npos);
}

TEST(Variable, OptionsThatContradictEachOtherAreRefused) {
  MirroredStrategy strategy(2, quick());
  const Scope scope = strategy.scope();
  const auto words = [](VariableOptions options, auto value) {
    options.name = "v";
    return refusal([&] { Variable<decltype(value)>(Tensor<decltype(value)>(value), options); }, Code::usage);
  };
  EXPECT_NE(words({.synchronization = Synchronization::none}, 1.F).find("NONE is not supported"), std::string::npos);
  EXPECT_NE(
      words({.synchronization = static_cast<Synchronization>(9)}, 1.F).find("invalid variable synchronization mode 9"),
      std::string::npos);
  EXPECT_NE(words({.aggregation = static_cast<Aggregation>(9)}, 1.F).find("invalid variable aggregation mode 9"),
            std::string::npos);
  EXPECT_NE(words({.aggregation = Aggregation::mean}, 1).find("MEAN of a type without fractions"), std::string::npos);
  EXPECT_NE(words({.aggregation = Aggregation::sum}, true).find("SUM of bool"), std::string::npos);
  EXPECT_NE(words({.synchronization = Synchronization::on_read, .trainable = true}, 1.F).find("cannot be trained"),
            std::string::npos);
  EXPECT_FALSE(Variable(1.F, on_read(Aggregation::sum)).trainable());
  EXPECT_FALSE(Variable(1.F, {.trainable = false}).trainable());
}

TEST(Variable, SynchronisedOnReadRefusesChangesWithoutAReason) {
  MirroredStrategy strategy(2, quick());
  const Scope scope = strategy.scope();
  Variable total(0.F, on_read(Aggregation::sum));
  const std::string words = refusal([&] { total.assign_add(1.F); }, Code::usage);
  EXPECT_NE(words.find("with the aggregation SUM, does not support assign_add for all replicas"), std::string::npos);
  refusal([&] { total.assign_sub(1.F); }, Code::usage);
  refusal([&] { total.scatter_add(rows({1}, {0}, 1)); }, Code::usage);
  Variable alone(0.F, on_read(Aggregation::none));
  EXPECT_NE(refusal([&] { (void)alone.read(); }, Code::usage).find("has no aggregation"), std::string::npos);
  EXPECT_EQ(alone.saved().item(), 0);
  Variable list(row({1.F, 2.F}), on_read(Aggregation::sum));
  EXPECT_NE(refusal([&] { list.scatter_add(rows({1}, {0}, 2)); }, Code::usage).find("it is synchronised on read"),
            std::string::npos);
}

TEST(Variable, CheckSyncNamesTheDifferences) {
  MirroredStrategy strategy(4, quick());
  const Scope scope = strategy.scope();
  Variable<double> weights(Tensor<double>({1000}, 0.5), {.name = "weights"});
  weights.check_sync();
  const auto flip = [&](int replica, std::size_t element) {
    strategy.run([&](ReplicaContext& context) {
      if (context.local_id() != replica) return;
      reinterpret_cast<std::uint8_t*>(&weights.local()[element])[3] ^= 1U;
    });
  };
  flip(2, 777);
  std::string words = refusal([&] { weights.check_sync(); }, Code::out_of_sync);
  EXPECT_NE(words.find("variable 'weights' differs from replicas 0-1,3: replica 2, element 777"), std::string::npos)
      << words;
  flip(2, 770);
  flip(0, 999);
  words = refusal([&] { weights.check_sync(); }, Code::out_of_sync);
  EXPECT_NE(words.find("replica 0, element 999; replica 2, between elements 770 and 777"), std::string::npos) << words;
  weights.assign(weights.parts()[1]);
  weights.check_sync();
}

TEST(Variable, IsPrintedWithItsParts) {
  MirroredStrategy strategy(2, quick());
  MirroredStrategy alone(1, quick());
  CentralStorageStrategy central(2, quick());
  OneDeviceStrategy one(quick());
  const auto printed = [](Strategy& in, VariableOptions options, const Tensor<float>& value) {
    const Scope scope = in.scope();
    std::ostringstream out;
    out << Variable<float>(value, std::move(options));
    return out.str();
  };
  // As the guide shows it.
  EXPECT_EQ(printed(alone, {}, 1.F),
            "MirroredVariable:{\n  0: <tf.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>\n}");
  EXPECT_EQ(printed(strategy, {.name = "w"}, row({1.F, 2.F})),
            "MirroredVariable:{\n"
            "  0: <tf.Variable 'w:0' shape=(2,) dtype=float32, numpy=array([1., 2.], dtype=float32)>,\n"
            "  1: <tf.Variable 'w/replica_1:0' shape=(2,) dtype=float32, numpy=array([1., 2.], dtype=float32)>\n}");
  EXPECT_EQ(printed(one, {}, 1.F), "<tf.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>");
  EXPECT_TRUE(printed(strategy, on_read(Aggregation::sum), 1.F).starts_with("SyncOnReadVariable:{\n  0: "));
  EXPECT_TRUE(printed(central, {}, 1.F).starts_with("AggregatingVariable:{\n  0: "));
}

// The first replica changes v, then w; the others w, then v, at the same line. Both variables would end as 11.
std::string words_of_changes_in_another_order(Strategy& strategy) {
  const Scope scope = strategy.scope();
  Variable v(0.F, written(Aggregation::sum));
  Variable w(0.F, written(Aggregation::sum));
  const auto change = [&](ReplicaContext& context) {
    std::vector<std::pair<Variable<float>*, float>> changes = {{&v, 1.F}, {&w, 10.F}};
    if (context.replica_id_in_sync_group() != 0) std::swap(changes[0], changes[1]);
    for (const auto& [variable, by] : changes) variable->assign_add(by);
  };
  return refusal([&] { strategy.run(change); }, Code::replica_failed);
}

TEST(Variable, ChangesInAnotherOrderAreAMismatch) {
  MirroredStrategy mirrored(3, quick());
  CentralStorageStrategy central(2, quick());
  MirroredStrategy with_ops(2, quick(std::make_shared<HierarchicalCopyAllReduce>()));
  for (Strategy* each :
       {static_cast<Strategy*>(&mirrored), static_cast<Strategy*>(&central), static_cast<Strategy*>(&with_ops)}) {
    const std::string words = words_of_changes_in_another_order(*each);
    for (const std::string_view part : {"E016", "variable 1", "variable 2"})
      EXPECT_NE(words.find(part), std::string::npos) << each->describe() << ": " << words;
  }
}

// The first replica gives its value and goes on; in known calls, nobody tells the others which one it was in.
TEST(Variable, ChangesOfTheFirstReplicaInAnotherOrderAreAMismatch) {
  MirroredStrategy strategy(3, quick());
  const Scope scope = strategy.scope();
  Variable v(0.F, written(Aggregation::only_first_replica));
  Variable w(0.F, written(Aggregation::only_first_replica));
  const auto change = [&](bool turned) {
    strategy.run([&](ReplicaContext& context) {
      const bool is_turned = turned && context.replica_id_in_sync_group() != 0;
      (is_turned ? w : v).assign_add(1.F);
      (is_turned ? v : w).assign_add(1.F);
    });
  };
  for (int lap = 0; lap < 3; ++lap) change(false);
  const std::string words = refusal([&] { change(true); }, Code::replica_failed);
  for (const std::string_view part : {"E016", "replica 0 made another one than broadcast of 1 f32", "for variable 2"})
    EXPECT_NE(words.find(part), std::string::npos) << words;
}

// One that is new to the others waits until they agree, while the first replica has left a call that it knew.
TEST(Variable, ChangesOfTheFirstReplicaInANewWayAreAMismatch) {
  MirroredStrategy strategy(2, quick());
  const Scope scope = strategy.scope();
  Variable v(0.F, written(Aggregation::only_first_replica));
  const auto change = [&](bool differs) {
    strategy.run([&](ReplicaContext& context) {
      if (differs && context.replica_id_in_sync_group() == 1)
        v.assign(1.F);
      else
        v.assign_add(1.F);
    });
  };
  for (int lap = 0; lap < 3; ++lap) change(false);
  const std::string words = refusal([&] { change(true); }, Code::replica_failed);
  for (const std::string_view part : {"E016", "replica 0 made another one than broadcast of 1 f32", "for variable 1"})
    EXPECT_NE(words.find(part), std::string::npos) << words;
}

TEST(Variable, ChangesInAnotherWayAreAMismatch) {
  MirroredStrategy mirrored(3, quick());
  CentralStorageStrategy central(2, quick());
  MirroredStrategy with_ops(2, quick(std::make_shared<HierarchicalCopyAllReduce>()));
  for (Strategy* each :
       {static_cast<Strategy*>(&mirrored), static_cast<Strategy*>(&central), static_cast<Strategy*>(&with_ops)}) {
    for (const bool is_of_rows : {false, true}) {
      const Scope scope = each->scope();
      Variable v(Tensor<float>(TensorShape{2}), written(Aggregation::sum));
      const std::string words = refusal(
          [&] {
            each->run([&](ReplicaContext& context) {
              const bool adds = context.replica_id_in_sync_group() != 1;
              const Tensor<float> one(TensorShape{2}, 1);
              const IndexedSlices<float> rows(Tensor<float>(TensorShape{1}, 1), {0}, TensorShape{2});
              if (is_of_rows) return adds ? v.scatter_add(rows) : v.scatter_sub(rows);
              adds ? v.assign_add(one) : v.assign_sub(one);
            });
          },
          Code::replica_failed);
      for (const std::string_view part : {"E016", "they change it in different ways"})
        EXPECT_NE(words.find(part), std::string::npos) << each->describe() << ": " << words;
    }
  }
}

// By default the chief may change a variable at a line of its own.
TEST(Variable, ChangesAtAnotherLineAreAMismatchOnlyIfSet) {
  for (const bool is_strict : {false, true}) {
    if (is_strict) ::setenv("LOCKSTEP_STRICT", "1", 1);
    MirroredStrategy strategy(2, quick());
    ::unsetenv("LOCKSTEP_STRICT");
    const Scope scope = strategy.scope();
    Variable v(0.F, written(Aggregation::sum));
    const auto change = [&](ReplicaContext& context) {
      if (context.replica_id_in_sync_group() == 0)
        v.assign_add(1.F);
      else
        v.assign_add(1.F);
    };
    if (is_strict) {
      const std::string words = refusal([&] { strategy.run(change); }, Code::replica_failed);
      EXPECT_NE(words.find("LOCKSTEP_STRICT=1 compares their lines"), std::string::npos) << words;
    } else {
      strategy.run(change);
      EXPECT_EQ(v.read().item(), 2);
    }
  }
}

// Each replica changes its own part alone: in any order.
TEST(Variable, ChangesOfOwnPartsHaveNoOrder) {
  MirroredStrategy strategy(2, quick());
  const Scope scope = strategy.scope();
  Variable v(0.F);
  Variable w(0.F);
  strategy.run([&](ReplicaContext& context) {
    if (context.replica_id_in_sync_group() == 0) {
      v.assign_add(1.F);
      w.assign_add(10.F);
    } else {
      w.assign_add(10.F);
      v.assign_add(1.F);
    }
  });
  EXPECT_EQ(v.read().item(), 1);
  EXPECT_EQ(w.read().item(), 10);
  v.check_sync();
}

TEST(Variable, WithoutAnAggregationWarnsOnceInReplicas) {
  std::vector<std::string> lines;
  StrategyOptions options = quick();
  options.log = Log(LogLevel::warn, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  MirroredStrategy strategy(2, options);
  const Scope scope = strategy.scope();
  Variable v(0.F, {.name = "lost"});
  Variable apart(0.F, on_read(Aggregation::none));
  v.assign(1.F);
  EXPECT_TRUE(lines.empty());
  int line = 0;
  for (int i = 0; i < 3; ++i) {
    strategy.run([&](ReplicaContext& context) {
      apart.assign(2.F);
      if (context.replica_id_in_sync_group() == 1) v.assign(2.F), line = __LINE__;
    });
  }
  ASSERT_EQ(lines.size(), 1U);
  EXPECT_PRED2(holds, lines[0], "replica 1 assigns variable 'lost' at ");
  EXPECT_PRED2(holds, lines[0], text("variable_rules_test.cpp:", line, ": it has no aggregation"));
}

TEST(Variable, PathsAreUsedOnce) {
  MirroredStrategy strategy(1, quick());
  const Scope scope = strategy.scope();
  std::vector<AnyVariable> all;
  for (const char* name : {"w", "w_2", "w", "w", "w_1", "w", "w_01"}) all.emplace_back(Variable(1.F, {.name = name}));
  std::vector<std::string> paths;
  for (const AnyVariable& each : all) paths.push_back(each.path());
  EXPECT_EQ(paths, (std::vector<std::string>{"w", "w_2", "w_1", "w_3", "w_1_1", "w_4", "w_01"}));
  refusal([] { const NameScope none(""); }, Code::usage);
}

TEST(Central, VariablesAreThereOnce) {
  CentralStorageStrategy strategy(2, quick());
  const Scope scope = strategy.scope();
  Variable v(1.F, written(Aggregation::sum));
  EXPECT_EQ(strategy.local_results(v), std::vector<Tensor<float>>{1.F});
  refusal([&] { strategy.run([&] { v.local()[0] = 1; }); }, Code::replica_failed);
  // What the reference's documentation computes: 0 to 3, and then 4 to 6, on two replicas.
  const PerReplica<Tensor<int>> parts{row({0, 1, 2, 3}), row({4, 5, 6, 7})};
  EXPECT_EQ(strategy.reduce("SUM", parts), row({4, 6, 8, 10}));
  EXPECT_EQ(strategy.reduce("SUM", parts, 0).item(), 28);
}

}  // namespace
}  // namespace lockstep
