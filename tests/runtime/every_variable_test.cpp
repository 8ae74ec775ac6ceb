// SPDX-License-Identifier: Apache-2.0
// Variables under every strategy and layout: every cell of the tables of assignments and reads.
#include <complex>
#include <cstring>
#include <sstream>

#include "tests/runtime/layouts.hpp"
#include "tests/runtime/variable_case.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

constexpr Aggregation all_aggregations[] = {Aggregation::none, Aggregation::sum, Aggregation::mean,
                                            Aggregation::only_first_replica};

template <class V, class Value>
constexpr bool takes = requires(V variable, Value value) {
  variable.assign(value);
};

class Variables : public EveryLayout {
 protected:
  Scope scope = strategy->scope();
  bool is_central() const { return dynamic_cast<CentralStorageStrategy*>(strategy.get()) != nullptr && size() > 1; }
  float sum_of_numbers() const { return static_cast<float>(size() * (size() + 1) / 2); }
  void each_part_is(Variable<float>& v, float value) const {
    for (const Tensor<float>& part : v.parts()) EXPECT_EQ(part.item(), value);
  }
};

float number(ReplicaContext& context) { return static_cast<float>(context.replica_id_in_sync_group() + 1); }

TEST_P(Variables, BeginWithTheSameValueEverywhere) {
  int calls = 0;
  Variable<float> v([&] { return row({1.F, static_cast<float>(++calls)}); }, {.name = "v"});
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(v.read(), row({1.F, 1.F}));
  EXPECT_EQ(v.name(), "v");
  EXPECT_EQ(v.shape(), TensorShape{2});
  EXPECT_TRUE(v.trainable());
  EXPECT_EQ(v.synchronization(), Synchronization::on_write);
  EXPECT_EQ(&v.strategy(), strategy.get());
  const auto seen = strategy->run([&] { return v.read(); });
  for (const auto& each : seen.local()) EXPECT_EQ(each, row({1.F, 1.F}));
  v.check_sync();
}

TEST_P(Variables, AreAssignedForAllAtOnce) {
  for (const Aggregation aggregation : all_aggregations) {
    Variable v(1.F, written(aggregation));
    v.assign(5.F);
    each_part_is(v, 5);
    v.assign_add(2.F);
    each_part_is(v, 7);
    v.assign_sub(4.F);
    each_part_is(v, 3);
    EXPECT_EQ(v.read().item(), 3);
  }
}

TEST_P(Variables, AreAssignedInReplicasAsTheirAggregationSays) {
  const std::pair<Aggregation, float> said[] = {{Aggregation::sum, sum_of_numbers()},
                                                {Aggregation::mean, sum_of_numbers() / static_cast<float>(size())},
                                                {Aggregation::only_first_replica, 1.F}};
  for (const auto& [aggregation, expected] : said) {
    Variable v(10.F, written(aggregation));
    const auto seen = strategy->run([&](ReplicaContext& context) {
      v.assign(number(context));
      const float assigned = v.read().item();
      v.assign_add(number(context));
      v.assign_sub(number(context));
      v.assign_add(number(context));
      return assigned;
    });
    for (const float each : seen.local()) EXPECT_EQ(each, expected);
    each_part_is(v, 2 * expected);
    v.check_sync();
  }
}

// TensorFlow refuses a plain number with the aggregation SUM. Here it is each replica's own, as a tensor is.
TEST_P(Variables, TakeANumberAsEachReplicasOwn) {
  Variable total(1.F, written(Aggregation::sum));
  Variable mean(1.F, written(Aggregation::mean));
  strategy->run([&] {
    total.assign_add(2.F);
    mean.assign_add(2.F);
  });
  each_part_is(total, 1 + 2 * static_cast<float>(size()));
  each_part_is(mean, 3);
}

TEST_P(Variables, WithoutAnAggregationChangeInTheirOwnReplicaAlone) {
  Variable v(0.F, written(Aggregation::none));
  const auto assign = [&] { strategy->run([&](ReplicaContext& context) { v.assign(number(context)); }); };
  if (is_central()) {
    end_calls();
    EXPECT_NE(refusal(assign, Code::replica_failed).find("has no aggregation"), std::string::npos);
    return;
  }
  assign();
  std::vector<Tensor<float>> expected;
  for (int i = 0; i < strategy->num_local_replicas(); ++i) expected.emplace_back(static_cast<float>(first() + i + 1));
  EXPECT_EQ(strategy->local_results(v), expected);
  if (size() > 1) refusal([&] { v.check_sync(); }, Code::out_of_sync);
}

TEST_P(Variables, AreUpdatedPartByPart) {
  Variable v(1.F, written(Aggregation::mean));
  strategy->run([&](ReplicaContext& context) {
    context.merge_call(
        [&](Strategy& all, const PerReplica<float>& mine) {
          const float total = all.reduce("SUM", mine);
          all.update(
              v, [](Variable<float>& part, float by) { part.assign_add(by); }, total);
        },
        number(context));
  });
  each_part_is(v, 1 + sum_of_numbers());
  const auto own = strategy->distribute_values_from([](ValueContext at) { return at.replica_id_in_sync_group; });
  const auto results = strategy->update(
      v,
      [&](Variable<float>& part, int id) {
        if (is_on_gpus())
          part.assign(static_cast<float>(id));
        else
          part.local()[0] = static_cast<float>(id);
        return part.read().item();
      },
      own);
  for (int i = 0; i < results.size(); ++i) EXPECT_EQ(results[i], static_cast<float>(first() + i));
}

TEST_P(Variables, TellWhichReplicasPartIsUpdated) {
  Variable v(1.F, written(Aggregation::none));
  EXPECT_FALSE(update_replica().has_value());
  const auto updated = strategy->update(v, [](Variable<float>&) { return update_replica().value_or(-1); });
  for (int i = 0; i < updated.size(); ++i) EXPECT_EQ(updated[i], first() + i);
  strategy->run([] { EXPECT_FALSE(update_replica().has_value()); });
}

TEST_P(Variables, AreChangedByRowsForAll) {
  Variable v(row({1.F, 2.F, 3.F}), written(Aggregation::none));
  v.scatter_add(rows({10, 20}, {0, 2}, 3));
  EXPECT_EQ(v.read(), row({11.F, 2.F, 23.F}));
  v.scatter_sub(rows({1}, {0}, 3));
  v.scatter_mul(rows({2}, {1}, 3));
  v.scatter_div(rows({23}, {2}, 3));
  EXPECT_EQ(v.read(), row({10.F, 4.F, 1.F}));
  v.scatter_min(rows({7, 7}, {0, 1}, 3));
  v.scatter_max(rows({5, 5}, {1, 2}, 3));
  v.scatter_update(rows({-1}, {0}, 3));
  EXPECT_EQ(v.read(), row({-1.F, 5.F, 5.F}));
  v.check_sync();
}

TEST_P(Variables, SynchronisedOnReadAreLocalInReplicas) {
  for (const Aggregation aggregation : all_aggregations) {
    Variable v(1.F, on_read(aggregation));
    const auto seen = strategy->run([&](ReplicaContext& context) {
      v.assign(number(context));
      v.assign_add(3.F);
      v.assign_sub(1.F);
      return v.read().item();
    });
    for (int i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<float>(first() + i + 3));
  }
}

TEST_P(Variables, SynchronisedOnReadAreReadAsTheirAggregationSays) {
  const auto read = [&](Aggregation aggregation) {
    Variable v(0.F, on_read(aggregation));
    strategy->run([&](ReplicaContext& context) { v.assign(number(context)); });
    EXPECT_EQ(v.read(), v.saved());
    return v.read().item();
  };
  EXPECT_EQ(read(Aggregation::sum), sum_of_numbers());
  EXPECT_EQ(read(Aggregation::mean), sum_of_numbers() / static_cast<float>(size()));
  EXPECT_EQ(read(Aggregation::only_first_replica), 1);
}

TEST_P(Variables, SynchronisedOnReadAreAssignedForAll) {
  for (const Aggregation aggregation : {Aggregation::mean, Aggregation::only_first_replica, Aggregation::sum}) {
    Variable v(0.F, on_read(aggregation));
    strategy->run([&](ReplicaContext& context) { v.assign(number(context)); });
    v.assign(8.F);
    EXPECT_EQ(v.read().item(), 8);
    if (aggregation == Aggregation::sum) continue;
    each_part_is(v, 8);
    v.assign_add(2.F);
    v.assign_sub(1.F);
    each_part_is(v, 9);
  }
}

TEST_P(Variables, ThatAreSumsComeBackExactly) {
  Variable<std::int64_t> count(std::int64_t{0}, on_read(Aggregation::sum));
  count.restore(std::int64_t{7});
  EXPECT_EQ(count.read().item(), 7);
  EXPECT_EQ(count.saved().item(), 7);
  strategy->run([&] { count.assign_add(std::int64_t{1}); });
  EXPECT_EQ(count.saved().item(), 7 + size());
  Variable<float> third(0.F, on_read(Aggregation::sum));
  third.restore(1.F / 3);
  EXPECT_EQ(third.read().item(), 1.F / 3);
}

// A sum of 0.0 and -0.0 is 0.0.
TEST_P(Variables, RestoreNegativeZeros) {
  const auto restore = [&](auto zero) {
    using T = decltype(zero);
    for (const Aggregation aggregation : {Aggregation::sum, Aggregation::mean, Aggregation::only_first_replica}) {
      for (const VariableOptions& options : {on_read(aggregation), written(aggregation)}) {
        Variable<T> v(Tensor<T>(T{}), options);
        for (const T value : {zero, T{}}) {
          v.restore(Tensor<T>(value));
          const T read = v.read().item();
          EXPECT_EQ(std::memcmp(&read, &value, sizeof(T)), 0) << to_string(data_type_of<T>);
        }
      }
    }
  };
  restore(-0.F);
  restore(-0.0);
  restore(f16(-0.F));
  restore(bf16(-0.F));
  restore(std::complex<float>(-0.F, -0.F));
  restore(std::complex<double>(-0.0, -0.0));
}

TEST_P(Variables, ThatCountStepsCountEachOnce) {
  Variable<std::int64_t> step(std::int64_t{0}, {.name = "iterations", .aggregation = Aggregation::only_first_replica});
  for (int i = 0; i < 3; ++i) strategy->run([&] { step.assign_add(std::int64_t{1}); });
  EXPECT_EQ(step.read().item(), 3);
  step.check_sync();
}

TEST_P(Variables, TakeResultsOfReductions) {
  Variable v(1.F, written(Aggregation::none));
  v.assign_add(Mirrored<Tensor<float>>{Tensor<float>(2.F), Tensor<float>(2.F)});
  each_part_is(v, 3);
  static_assert(takes<Variable<float>, Mirrored<Tensor<float>>> && !takes<Variable<float>, PerReplica<Tensor<float>>>);
  std::ostringstream out;
  out << Mirrored<Tensor<float>>{Tensor<float>(2.F)};
  EXPECT_EQ(out.str(), "Mirrored:{\n  0: tf.Tensor(2.0, shape=(), dtype=float32)\n}");
}

TEST_P(Variables, CalculateLikeTensors) {
  Variable<float> w(row({2.F, 4.F}), {.name = "w", .aggregation = Aggregation::sum});
  Variable<float> b(1.F, {.name = "b", .aggregation = Aggregation::sum});
  EXPECT_EQ(2 * w + b, row({5.F, 9.F}));
  EXPECT_EQ(-w, row({-2.F, -4.F}));
  w += b;
  (w -= 0.5F) -= row({1.F, 1.F});
  EXPECT_EQ(w.read(), row({1.5F, 3.5F}));
  strategy->run([&](ReplicaContext& context) {
    const Tensor<float> gradient = static_cast<float>(context.replica_id_in_sync_group()) * row({2.F, 4.F});
    w -= 0.5F * gradient;  // the sum of all
  });
  const auto all = static_cast<float>(sum_of_ids());
  EXPECT_EQ(w.read(), row({1.5F - all, 3.5F - 2 * all}));
  w.check_sync();
}

TEST_P(Variables, AreSeenWithoutACopy) {
  Variable<int> v(row({7, 8}), {.name = "v"});
  if (AnyVariable(v).layout().parts[0].gpu != gpu::MemoryLocation::host) {
    EXPECT_PRED2(holds, refusal([&] { (void)v.view(); }, Code::usage), "in a GPU's memory");
    return;
  }
  const TensorSpan<const int> seen = v.view();
  EXPECT_EQ(seen.copy(), row({7, 8}));
  v.assign(row({1, 2}));
  EXPECT_EQ(seen[1], 2);
  strategy->run([&](ReplicaContext&) { EXPECT_EQ(v.view().copy(), row({1, 2})); });
}

TEST_P(Variables, MadeInReplicasAreOne) {
  int calls = 0;
  Variable<float> v = strategy->run([&] {
    return Variable<float>(
        [&] {
          ++calls;
          return Tensor<float>(4.F);
        },
        written(Aggregation::sum));
  });
  EXPECT_EQ(calls, 1);
  strategy->run([&](ReplicaContext& context) { v.assign(number(context)); });
  each_part_is(v, sum_of_numbers());
}

TEST_P(Variables, OfEveryTypeAreKeptEqual) {
  const auto with_type = [&](auto value, auto twice) {
    using T = decltype(value);
    Variable<T> v(Tensor<T>(value), written(Aggregation::sum));
    strategy->run([&](ReplicaContext& context) {
      Tensor<T> mine = Tensor<T>(T{});
      if (context.replica_id_in_sync_group() == 0) mine = Tensor<T>(value);
      v.assign_add(mine);
    });
    EXPECT_EQ(v.read().item(), twice);
    v.check_sync();
  };
  with_type(f16(1.5F), f16(3.F));
  with_type(bf16(1.5F), bf16(3.F));
  with_type(1.5, 3.0);
  with_type(std::int8_t{5}, std::int8_t{10});
  with_type(std::uint64_t{5}, std::uint64_t{10});
  with_type(std::complex<float>(1, 2), std::complex<float>(2, 4));
  Variable<bool> flag(Tensor<bool>(false), written(Aggregation::only_first_replica));
  strategy->run([&](ReplicaContext& context) { flag.assign(context.replica_id_in_sync_group() == 0); });
  EXPECT_TRUE(flag.read().item());
}

TEST_P(Variables, ThatDoNotFitAreRefused) {
  Variable v(row({1.F, 2.F}), written(Aggregation::sum));
  EXPECT_PRED2(holds, refusal([&] { v.assign(3.F); }, Code::usage),
               "assign of variable 'v' of shape (2,): the value's shape is ()");
  refusal([&] { v.scatter_add(rows({1}, {0}, 3)); }, Code::usage);
  Variable moved = std::move(v);
  EXPECT_NE(refusal([&] { (void)v.read(); }, Code::usage).find("moved from"), std::string::npos);  // NOLINT
  EXPECT_EQ(moved.read(), row({1.F, 2.F}));
}

INSTANTIATE_TEST_SUITE_P(, Variables, testing::ValuesIn(layouts()), [](const auto& one) { return one.param.name; });

}  // namespace
}  // namespace lockstep::test
