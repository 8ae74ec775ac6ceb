// SPDX-License-Identifier: Apache-2.0
// Variables whose replicas are ranks.
#include <gtest/gtest.h>

#include "runtime/gradient_reducer.hpp"
#include "runtime/variable.hpp"
#include "tests/runtime/told_apart.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

class RankVariables : public testing::Test {
 protected:
  MultiWorkerMirroredStrategy strategy{session(), quiet()};
  Scope scope = strategy.scope();
  const int n = world().size();
  const float mine = static_cast<float>(world().rank() + 1);
  const float sum_of_numbers = static_cast<float>(n * (n + 1) / 2);
};

TEST_F(RankVariables, BeginWithTheFirstRanksValue) {
  Variable v(row({mine, 2 * mine}), {.name = "v"});
  EXPECT_EQ(v.read(), row({1.F, 2.F}));
  Variable<float> made = strategy.run([&] { return Variable(mine); });
  EXPECT_EQ(made.read().item(), 1);
}

TEST_F(RankVariables, ThatOneRankCannotMakeAreMadeByNone) {
  if (n == 1) GTEST_SKIP() << lacks("needs another rank");
  const bool is_last = world().rank() == n - 1;
  const auto make = [&] {
    if (is_last) throw std::runtime_error("no such file");
    return Tensor<float>(1.F);
  };
  if (is_last)
    EXPECT_THROW(Variable<float>{make}, std::runtime_error);
  else
    EXPECT_NE(refusal([&] { Variable<float>{make}; }, Code::peer_failed).find("could not make its variable"),
              std::string::npos);
  const TensorShape shape = is_last ? TensorShape{2, 3} : TensorShape{3, 2};
  EXPECT_NE(refusal([&] { Variable<float>(Tensor<float>(shape)); }, Code::usage)
                .find(text("begins with the shape (3, 2) at replica 0 and (2, 3) at replica ", n - 1)),
            std::string::npos);
  EXPECT_EQ(Variable(1.F).read().item(), 1) << "and all go on";
}

TEST_F(RankVariables, ThatAxesDoNotFitIsKnownToAll) {
  if (n == 1) GTEST_SKIP() << lacks("needs another rank");
  const bool is_last = world().rank() == n - 1;
  const PerReplica<Tensor<float>> value{Tensor<float>(is_last ? TensorShape{2} : TensorShape{2, 2})};
  refusal([&] { strategy.reduce("SUM", value, 1); }, Code::usage);
  refusal([&] { (void)strategy.gather(value, 1); }, Code::usage);
  EXPECT_EQ(strategy.reduce("SUM", PerReplica<float>{1}), static_cast<float>(n));
}

TEST_F(RankVariables, AreAssignedAsTheirAggregationSays) {
  const std::pair<Aggregation, float> cases[] = {{Aggregation::sum, sum_of_numbers},
                                                 {Aggregation::mean, sum_of_numbers / static_cast<float>(n)},
                                                 {Aggregation::only_first_replica, 1.F},
                                                 {Aggregation::none, mine}};
  for (const auto& [aggregation, expected] : cases) {
    Variable v(0.F, {.aggregation = aggregation});
    strategy.run([&] { v.assign_add(mine); });
    EXPECT_EQ(v.read().item(), expected);
    v.assign(3.F);
    EXPECT_EQ(v.read().item(), 3);
  }
}

TEST_F(RankVariables, SynchronisedOnReadBecomeOneWhenAllAsk) {
  const auto value = [&](Aggregation aggregation) {
    Variable v(0.F, {.synchronization = Synchronization::on_read, .aggregation = aggregation});
    strategy.run([&] { v.assign_add(mine); });
    return v.read().item();
  };
  EXPECT_EQ(value(Aggregation::sum), sum_of_numbers);
  EXPECT_EQ(value(Aggregation::mean), sum_of_numbers / static_cast<float>(n));
  EXPECT_EQ(value(Aggregation::only_first_replica), 1);
  Variable<std::int64_t> count(std::int64_t{0},
                               {.synchronization = Synchronization::on_read, .aggregation = Aggregation::sum});
  count.restore(std::int64_t{7});
  EXPECT_EQ(count.saved().item(), 7);
}

TEST_F(RankVariables, ThatDifferAreNamedOnAll) {
  Variable v(Tensor<float>({100}, 1.F), {.name = "weights"});
  v.check_sync();
  if (n == 1) GTEST_SKIP() << lacks("needs another rank");
  strategy.run([&] {
    if (world().rank() == n - 1) v.local()[42] = -1;
  });
  const std::string words = refusal([&] { v.check_sync(); }, Code::out_of_sync);
  // Of two, nobody knows which is right; the first one counts.
  EXPECT_NE(words.find(text("replica ", n - 1, ", element 42")), std::string::npos) << words;
}

// A rank that is still making its variables hears there that two others differ.
const std::initializer_list<Code> told_in_run_or_before = {Code::replica_failed, Code::mismatch};

TEST_F(RankVariables, ChangesInAnotherOrderAreToldApart) {
  if (n == 1) GTEST_SKIP() << lacks("needs another rank");
  const auto change = [&] {
    Variable v(0.F, {.aggregation = Aggregation::sum});
    Variable w(0.F, {.aggregation = Aggregation::sum});
    strategy.run([&] {
      if (world().rank() == 0) {
        v.assign_add(1.F);
        w.assign_add(10.F);
      } else {
        w.assign_add(10.F);
        v.assign_add(1.F);
      }
    });
  };
  const std::string words = refusal(change, told_in_run_or_before);
  for (const std::string_view part : {"E016", "variable 1", "variable 2"})
    EXPECT_NE(words.find(part), std::string::npos) << words;
}

TEST_F(RankVariables, ChangesInAnotherWayAreToldApart) {
  if (n == 1) GTEST_SKIP() << lacks("needs another rank");
  const auto change = [&] {
    Variable v(0.F, {.aggregation = Aggregation::sum});
    strategy.run([&] { world().rank() == 0 ? v.assign(1.F) : v.assign_add(1.F); });
  };
  const std::string words = refusal(change, told_in_run_or_before);
  for (const std::string_view part : {"E016", "variable 1", "they change it in different ways"})
    EXPECT_NE(words.find(part), std::string::npos) << words;
}

TEST_F(RankVariables, TensorsOfAnotherShapeAreToldApart) {
  if (n == 1) GTEST_SKIP() << lacks("needs another rank");
  const PerReplica<Tensor<float>> value{Tensor<float>(world().rank() == 0 ? TensorShape{2, 3} : TensorShape{3, 2})};
  const std::string words = refusal([&] { strategy.reduce("SUM", value); }, Code::mismatch);
  EXPECT_NE(words.find("differ in order, shape"), std::string::npos) << words;
}

TEST_F(RankVariables, GradientsInAnotherOrderAreToldApart) {
  if (n == 1) GTEST_SKIP() << lacks("needs another rank");
  const std::size_t first = world().rank() == 0 ? 2 : 4;
  GradientReducer reducer(strategy, {{"a", DataType::f32, first}, {"b", DataType::f32, 6 - first}});
  const auto step = [&](ReplicaContext& context) {
    std::vector<float> a(first);
    std::vector<float> b(6 - first);
    GradientReducer::BackwardPass pass(reducer, context);
    pass.ready(1, std::span(b));
    pass.ready(0, std::span(a));
    pass.finish();
  };
  const std::string words = refusal([&] { strategy.run(step); }, Code::replica_failed);
  EXPECT_NE(words.find("differ in order, shape"), std::string::npos) << words;
}

TEST_F(RankVariables, RowsOfAllRanksAreScattered) {
  Variable v(Tensor<float>(TensorShape{8, 2}), {.aggregation = Aggregation::sum});
  strategy.run([&] {
    const std::int64_t id = world().rank();
    v.scatter_add({Tensor<float>(TensorShape{id + 1, 2}, mine),
                   std::vector<std::int64_t>(static_cast<std::size_t>(id) + 1, id),
                   {8, 2}});
  });
  for (int i = 0; i < n; ++i)
    EXPECT_EQ(v.read()[static_cast<std::size_t>(2 * i)], static_cast<float>((i + 1) * (i + 1)));
  v.check_sync();
}

TEST_F(RankVariables, TensorsAreGatheredAndReducedAlongAxes) {
  const PerReplica<Tensor<float>> rows{Tensor<float>(TensorShape{world().rank() + 1, 2}, mine)};
  const Tensor<float> all = strategy.gather(rows, 0);
  EXPECT_EQ(all.shape(), (TensorShape{n * (n + 1) / 2, 2}));
  EXPECT_EQ(all[all.size() - 1], static_cast<float>(n));
  float squares = 0;
  for (int i = 1; i <= n; ++i) squares += static_cast<float>(i * i);
  EXPECT_EQ(strategy.reduce("MEAN", rows, 0), row({squares / sum_of_numbers, squares / sum_of_numbers}));
}

}  // namespace
}  // namespace lockstep::test
