// SPDX-License-Identifier: Apache-2.0
// Variables made by replicas, and changed or read where one would not look for it: from each other, in update(), and
// outside of all scopes. Under every strategy and layout; what is made there belongs to it, and tells so.
#include "runtime/extended.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/runtime/variable_case.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {
namespace {

Variable<float> named(std::string name) { return Variable(1.F, {.name = std::move(name)}); }

class MadeVariables : public EveryLayout {
 protected:
  const float n = static_cast<float>(size());

  bool is_central() const { return strategy->variable_layout({}).is_shared; }
  template <class... A>
  Variable<float> in_scope(A... a) {
    const Scope scope = strategy->scope();
    return Variable<float>(std::move(a)...);
  }
  float id(int local) { return static_cast<float>(first() + local); }
  void each_part_is(const Variable<float>& v, float value) const {
    for (const Tensor<float>& part : v.parts()) EXPECT_EQ(part.item(), value);
  }
  // A part for each replica, of this strategy.
  void is_one(const Variable<float>& v, std::string_view name) const {
    EXPECT_EQ(v.name(), name);
    EXPECT_EQ(&v.strategy(), strategy.get());
    EXPECT_EQ(static_cast<int>(v.parts().size()), is_central() ? 1 : strategy->num_local_replicas());
    each_part_is(v, 1);
    EXPECT_NE(v.to_string().find(text('\'', name, ":0'")), std::string::npos) << v.to_string();
  }
};

float id_of(ReplicaContext& context) { return static_cast<float>(context.replica_id_in_sync_group()); }

TEST_P(MadeVariables, InReplicasAreOneOfTheirName) {
  const Variable<float> v = strategy->run([](ReplicaContext& context) {
    Variable<float> made = named("foo");
    context.merge_call([](Strategy&) {});
    return made;
  });
  is_one(v, "foo");
  const Variable<float> unnamed = strategy->run([] { return Variable(1.F); });
  is_one(unnamed, "Variable");
}

TEST_P(MadeVariables, InReplicasComeInLists) {
  const std::vector<std::string> lists[] = {{"foo0", "foo1", "foo2", "foo3", "foo4"},
                                            {"foo/bar", "foo_1/bar", "foo_1/bar_1", "foo/bar_1"}};
  for (const auto& names : lists) {
    const std::vector<Variable<float>> made = strategy->run([&] {
      std::vector<Variable<float>> mine;
      for (const std::string& each : names) mine.push_back(named(each));
      return mine;
    });
    ASSERT_EQ(made.size(), names.size());
    for (std::size_t i = 0; i < names.size(); ++i) is_one(made[i], names[i]);
  }
}

// A number at the end may differ: the variable has the name of the process's first replica.
TEST_P(MadeVariables, InReplicasMayBeNumberedByThem) {
  const Variable<float> v =
      strategy->run([](ReplicaContext& context) { return named(text("foo_", context.replica_id_in_sync_group())); });
  is_one(v, text("foo_", first()));
}

// Those of one process are compared. A process may hear of another's failure before its own replicas have met.
TEST_P(MadeVariables, InReplicasOfTwoNamesAreRefused) {
  const int here = strategy->num_local_replicas();
  if (here == size() && size() == 1) GTEST_SKIP() << lacks("needs two replicas");
  if (here == 1 && GetParam().name == "one_each") GTEST_SKIP() << lacks("needs a process with two replicas");
  for (const auto& names : {std::pair("foo", "bar"), {"foo", "foo1"}, {"foo_1", "foo_x"}, {"foo", "_1"}}) {
    const auto make = [&](ReplicaContext& context) { named(context.local_id() == 0 ? names.first : names.second); };
    end_calls();
    const std::string words = refusal([&] { strategy->run(make); }, {Code::replica_failed, Code::peer_failed});
    const bool is_of_another = !is_in_one_process() && words.find("LOCKSTEP-E015") != std::string::npos;
    if (is_of_another) {
      EXPECT_PRED2(holds, words, "could not make its variable");
    } else if (here > 1) {
      EXPECT_PRED2(holds, words,
                   text("is named '", names.first, "' in the first replica of this process and '", names.second, '\''));
    }
  }
  is_one(strategy->run([] { return named("foo"); }), "foo");
}

TEST_P(MadeVariables, SynchronisedOnReadAreMadeInReplicas) {
  auto made = strategy->run(
      [] { return std::tuple(Variable(1.F, on_read(Aggregation::sum)), Variable(4.F, on_read(Aggregation::mean))); });
  auto& total = std::get<0>(made);
  auto& mean = std::get<1>(made);
  strategy->run([&](ReplicaContext& context) {
    total.assign_add(2 + id_of(context));
    mean.assign(6 * id_of(context));
  });
  for (int i = 0; i < strategy->num_local_replicas(); ++i) {
    EXPECT_EQ(total.parts()[static_cast<std::size_t>(i)].item(), id(i) + 3);
    EXPECT_EQ(mean.parts()[static_cast<std::size_t>(i)].item(), 6 * id(i));
  }
  EXPECT_EQ(total.read().item(), 3 * n + static_cast<float>(sum_of_ids()));
  EXPECT_EQ(mean.read().item(), 3 * (n - 1));
}

TEST_P(MadeVariables, SynchronisedOnReadBeginWithTheFirstReplicasValue) {
  const auto begin = [&](Aggregation aggregation) {
    return strategy->run(
        [&](ReplicaContext& context) { return Variable(7.5F + id_of(context), on_read(aggregation)); });
  };
  for (const Aggregation aggregation :
       {Aggregation::none, Aggregation::sum, Aggregation::mean, Aggregation::only_first_replica}) {
    const Variable<float> v = begin(aggregation);
    EXPECT_EQ(static_cast<int>(v.parts().size()), strategy->num_local_replicas());
    each_part_is(v, 7.5F);
  }
}

TEST_P(MadeVariables, SynchronisedOnReadAreSummed) {
  Variable<float> v = strategy->run([] { return Variable(1.F, on_read(Aggregation::sum)); });
  EXPECT_EQ(v.read().item(), n) << "of the first values";
  v.assign(6.F);
  EXPECT_EQ(v.read().item(), 6);
  Variable<float> updated = strategy->run([] { return Variable(1.F, on_read(Aggregation::sum)); });
  EXPECT_EQ(updated.parts()[0].item(), 1);
  strategy->update(updated, [](Variable<float>& part) { part.assign(5.F); });
  EXPECT_EQ(updated.parts()[0].item(), 5);
  EXPECT_EQ(updated.read().item(), 5 * n) << "each part has been assigned by itself";
}

TEST_P(MadeVariables, AreReadAndAssignedOutsideOfAllScopes) {
  Variable<float> one = in_scope(0.F, on_read(Aggregation::sum));
  Variable<float> two = in_scope(0.F, on_read(Aggregation::sum));
  Variable<float> written_one = in_scope(1.F, VariableOptions{});
  strategy->run([&] {
    one.assign_add(1.F);
    two.assign_add(2.F);
  });
  ASSERT_FALSE(has_strategy());
  EXPECT_EQ(one.read().item(), n);
  EXPECT_EQ(two.read().item(), 2 * n);
  written_one.assign(3.F);
  EXPECT_EQ(written_one.read().item(), 3);
  EXPECT_EQ(static_cast<int>(written_one.parts().size()), is_central() ? 1 : strategy->num_local_replicas());
  each_part_is(written_one, 3);
}

TEST_P(MadeVariables, ReadsOfReplicasCanBeSummed) {
  Variable<float> v = in_scope(0.F, on_read(Aggregation::only_first_replica));
  const auto sums = strategy->run([&](ReplicaContext& context) {
    v.assign(3 * id_of(context));
    return context.all_reduce(v.read().item(), sum);
  });
  for (const float each : sums.local()) EXPECT_EQ(each, 3 * static_cast<float>(sum_of_ids()));
}

TEST_P(MadeVariables, HaveTheirOptions) {
  const Variable<float> counted = in_scope(row({1.F, 2.F}), on_read(Aggregation::sum));
  EXPECT_EQ(counted.name(), "v");
  EXPECT_EQ(&counted.strategy(), strategy.get());
  EXPECT_EQ(counted.shape(), counted.parts()[0].shape());
  EXPECT_EQ(counted.aggregation(), Aggregation::sum);
  EXPECT_NE(counted.to_string().find("shape=(2,) dtype=float32"), std::string::npos) << counted.to_string();
  const bool is_plain = strategy->variable_layout({}).is_plain();
  EXPECT_EQ(counted.synchronization(), is_plain ? Synchronization::on_write : Synchronization::on_read);
  const Variable<float> baz = in_scope(
      1.F,
      VariableOptions{.name = "baz", .synchronization = Synchronization::on_write, .aggregation = Aggregation::mean});
  EXPECT_EQ(baz.name(), "baz");
  EXPECT_EQ(&baz.strategy(), strategy.get());
  EXPECT_EQ(baz.synchronization(), Synchronization::on_write);
  EXPECT_EQ(baz.aggregation(), Aggregation::mean);
}

// For all, and in replicas, of which each reads its own part.
TEST_P(MadeVariables, AreAssignedFromOtherVariables) {
  Variable<float> w = in_scope(2.F, written(Aggregation::mean));
  Variable<float> m = in_scope(-2.F, written(Aggregation::mean));
  const std::function<void(Variable<float>&)> changes[] = {
      [&](Variable<float>& v) { v.assign(w.read()); },
      [&](Variable<float>& v) { v.assign_add(w.read()); },
      [&](Variable<float>& v) { v.assign_sub(m.read()); },
  };
  const VariableOptions options[] = {written(Aggregation::none), written(Aggregation::mean),
                                     written(Aggregation::only_first_replica), on_read(Aggregation::mean),
                                     on_read(Aggregation::only_first_replica)};
  for (const VariableOptions& each : options) {
    for (const auto& change : changes) {
      Variable<float> for_all = in_scope(0.F, each);
      change(for_all);
      each_part_is(for_all, 2);
      EXPECT_EQ(for_all.read().item(), 2);
      if (is_central() && each.aggregation == Aggregation::none) continue;  // replicas cannot change it
      Variable<float> in_replicas = in_scope(0.F, each);
      strategy->run([&] { change(in_replicas); });
      each_part_is(in_replicas, 2);
    }
  }
}

TEST_P(MadeVariables, AreUpdatedByEachReplicasOwnValue) {
  const auto number = strategy->distribute_values_from(
      [](ValueContext at) { return static_cast<float>(at.replica_id_in_sync_group + 1); });
  for (const VariableOptions& options : {on_read(Aggregation::none), written(Aggregation::none)}) {
    Variable<float> v = in_scope(0.F, options);
    const auto parts_are = [&](float times) {
      for (std::size_t i = 0; i < v.parts().size(); ++i)
        EXPECT_EQ(v.parts()[i].item(), times * (id(static_cast<int>(i)) + 1));
    };
    const auto update = [&](auto&& how) { strategy->extended().update(v, how, number); };
    update([](Variable<float>& part, float by) { part.assign(by); });
    parts_are(1);
    update([](Variable<float>& part, float by) { part.assign_add(by); });
    parts_are(2);
    update([](Variable<float>& part, float by) { part.assign_sub(by); });
    parts_are(1);
    update([](Variable<float>& part, float) { part.assign_add(2 * part.read().item()); });
    parts_are(3);
  }
}

INSTANTIATE_TEST_SUITE_P(, MadeVariables, testing::ValuesIn(layouts()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace lockstep::test
