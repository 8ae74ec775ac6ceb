// SPDX-License-Identifier: Apache-2.0
// Variables whose replicas are ranks.
#include <gtest/gtest.h>

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

TEST_F(RankVariables, begin_with_the_first_ranks_value) {
  Variable v(row({mine, 2 * mine}), {.name = "v"});
  EXPECT_EQ(v.read(), row({1.F, 2.F}));
  Variable<float> made = strategy.run([&] { return Variable(mine); });
  EXPECT_EQ(made.read().item(), 1);
}

TEST_F(RankVariables, that_one_rank_cannot_make_are_made_by_none) {
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

TEST_F(RankVariables, that_axes_do_not_fit_is_known_to_all) {
  if (n == 1) GTEST_SKIP() << lacks("needs another rank");
  const bool is_last = world().rank() == n - 1;
  const PerReplica<Tensor<float>> value{Tensor<float>(is_last ? TensorShape{2} : TensorShape{2, 2})};
  refusal([&] { strategy.reduce("SUM", value, 1); }, Code::usage);
  refusal([&] { (void)strategy.gather(value, 1); }, Code::usage);
  EXPECT_EQ(strategy.reduce("SUM", PerReplica<float>{1}), static_cast<float>(n));
}

TEST_F(RankVariables, are_assigned_as_their_aggregation_says) {
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

TEST_F(RankVariables, synchronised_on_read_become_one_when_all_ask) {
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

TEST_F(RankVariables, that_differ_are_named_on_all) {
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

TEST_F(RankVariables, rows_of_all_ranks_are_scattered) {
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

TEST_F(RankVariables, tensors_are_gathered_and_reduced_along_axes) {
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
