// SPDX-License-Identifier: Apache-2.0
// Variables whose replicas are ranks.
#include <gtest/gtest.h>

#include "runtime/gradient_reducer.hpp"
#include "runtime/variable.hpp"
#include "tests/runtime/told_apart.hpp"
#include "tests/support/holds.hpp"
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
    EXPECT_PRED2(holds, refusal([&] { Variable<float>{make}; }, Code::peer_failed), "could not make its variable");
  const TensorShape shape = is_last ? TensorShape{2, 3} : TensorShape{3, 2};
  EXPECT_PRED2(holds, refusal([&] { Variable<float>(Tensor<float>(shape)); }, Code::usage),
               text("begins with the shape (3, 2) at replica 0 and (2, 3) at replica ", n - 1));
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

TEST_F(RankVariables, ChangesInAnotherOrderAreAMismatch) {
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

TEST_F(RankVariables, TensorsOfAnotherShapeAreAMismatch) {
  if (n == 1) GTEST_SKIP() << lacks("needs another rank");
  const PerReplica<Tensor<float>> value{Tensor<float>(world().rank() == 0 ? TensorShape{2, 3} : TensorShape{3, 2})};
  const std::string words = refusal([&] { strategy.reduce("SUM", value); }, Code::mismatch);
  EXPECT_NE(words.find("differ in order, shape"), std::string::npos) << words;
}

TEST_F(RankVariables, GradientsInAnotherOrderAreAMismatch) {
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

}  // namespace
}  // namespace lockstep::test
