// SPDX-License-Identifier: Apache-2.0
// Steps that change variables wholly or not at all, under every strategy and layout.
#include <gtest/gtest.h>

#include "tests/runtime/layouts.hpp"
#include "tests/runtime/variable_case.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

// Holds variables of all kinds, and changes them in all ways.
struct StepVariables {
  explicit StepVariables(bool shares_parts)
      : own(row({1.F, 2.F}), written(shares_parts ? Aggregation::mean : Aggregation::none)) {}

  Variable<float> own;
  Variable<float> sums{row({3.F, 4.F}), written(Aggregation::sum)};
  Variable<double> means{5.0, written(Aggregation::mean)};
  Variable<std::int64_t> steps{std::int64_t{6}, written(Aggregation::only_first_replica)};
  Variable<int> counter{7, on_read(Aggregation::sum)};
  Variable<float> merged{8.F};

  std::string values() const {
    return text(own.to_string(), sums.to_string(), means.to_string(), steps.to_string(), counter.to_string(),
                merged.to_string());
  }
  void change(ReplicaContext& context) {
    const auto me = static_cast<float>(context.replica_id_in_sync_group());
    own.assign(row({me, me}));
    own.assign_add(row({1.F, 1.F}));
    sums.scatter_add(rows({1.F + me}, {1}, 2));
    means.assign_sub(me + 1.0);
    steps.assign_add(1);
    counter.assign_add(1);
    context.merge_call([&](Strategy& strategy) {
      merged.assign_add(1.F);
      strategy.update(merged, [](Variable<float>& part) { part.assign_add(1.F); });
      counter.assign(70);
    });
  }
};

class Steps : public EveryLayout {
 protected:
  bool shares_parts() const { return holds(strategy->describe(), "Central") && size() > 1; }
  void fail(StepVariables& all) {
    end_calls();
    const auto words = refusal(
        [&] {
          strategy->step([&](ReplicaContext& context) {
            all.change(context);
            EXPECT_EQ(all.merged.read().item(), merged_before_ + 2) << "a replica reads its changes";
            if (context.replica_id_in_sync_group() == size() - 1) throw std::runtime_error("in the middle");
            (void)context.all_reduce(1, sum);
          });
        },
        Code::replica_failed);
    EXPECT_TRUE(holds(words, "in the middle")) << words;
  }

  float merged_before_ = 8;
};

TEST_P(Steps, PutBackEveryVariableAfterAFailure) {
  const Scope scope = strategy->scope();
  auto all = std::make_unique<StepVariables>(shares_parts());
  const std::string before = all->values();
  // The same values as after run(), which undoes nothing.
  strategy->step([&](ReplicaContext& context) { all->change(context); });
  const std::string after = all->values();
  EXPECT_NE(after, before);
  EXPECT_EQ(all->steps.read().item(), 7);
  EXPECT_EQ(all->merged.read().item(), 10);
  merged_before_ = 10;
  fail(*all);
  EXPECT_EQ(all->values(), after);
  fail(*all);
  EXPECT_EQ(all->values(), after);
  strategy->step([&](ReplicaContext& context) { all->change(context); });
  EXPECT_EQ(all->steps.read().item(), 8);
}

TEST_P(Steps, PutBackPartsThatWereWrittenInPlace) {
  if (is_on_gpus() || shares_parts()) GTEST_SKIP() << lacks("parts in the host's memory, one for each replica");
  const Scope scope = strategy->scope();
  Variable v(row({1.F, 2.F}));
  const auto write = [&](ReplicaContext& context) {
    v.local()[1] = 9;
    if (context.replica_id_in_sync_group() == size() - 1) throw std::runtime_error("in the middle");
    (void)context.all_reduce(1, sum);
  };
  end_calls();
  refusal([&] { strategy->step(write); }, Code::replica_failed);
  for (const Tensor<float>& each : v.parts()) EXPECT_EQ(each, row({1.F, 2.F}));
  end_calls();
  refusal([&] { strategy->run(write); }, Code::replica_failed);
  EXPECT_EQ(v.parts().back(), row({1.F, 9.F})) << "run() undoes nothing";
}

TEST_P(Steps, ReturnAndTakeWhatRunsDo) {
  const auto ids = strategy->step([](ReplicaContext& context) { return context.replica_id_in_sync_group(); });
  const auto twice = strategy->step([](int id) { return 2 * id; }, ids);
  EXPECT_EQ(strategy->reduce("SUM", twice), 2 * sum_of_ids());
  EXPECT_EQ(get_strategy().step([] { return 5; })[0], 5);
}

INSTANTIATE_TEST_SUITE_P(All, Steps, testing::ValuesIn(layouts()), [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
