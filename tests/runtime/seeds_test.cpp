// SPDX-License-Identifier: Apache-2.0
// What the documents print, under every strategy and layout: numbers that must come out whatever the replicas are.
#include <gtest/gtest.h>

#include <cmath>
#include <sstream>

#include "tests/runtime/layouts.hpp"
#include "tests/runtime/variable_case.hpp"
#include "tests/support/holds.hpp"

namespace lockstep::test {
namespace {

class Seeds : public EveryLayout {};

// The guide's training loop: a layer w x + b, all examples 1 with the label 1, binary cross-entropy, gradient descent
// by 0.01. The first loss is given, 29 follow.
constexpr double losses[] = {0.29786447, 0.29653987, 0.29522538, 0.29392087, 0.29262626, 0.29134142,
                             0.29006627, 0.28880078, 0.2875447,  0.28629807, 0.28506076, 0.2838327,
                             0.28261372, 0.28140378, 0.28020284, 0.27901068, 0.27782732, 0.27665266,
                             0.2754866,  0.274329,   0.2731799,  0.27203918, 0.27090666, 0.26978233,
                             0.26866615, 0.26755798, 0.2664578,  0.26536545, 0.2642809,  0.26320407};

TEST_P(Seeds, LossesOfTheCustomLoopAreThoseThatItPrints) {
  const Scope scope = strategy->scope();
  Variable<double> w(-std::log(std::expm1(losses[0])), {.name = "kernel", .aggregation = Aggregation::sum});
  Variable<double> b(0.0, {.name = "bias", .aggregation = Aggregation::sum});
  const int global_batch = 16 + size();  // not the same for all replicas
  for (const double printed : losses) {
    const auto per_replica = strategy->run([&](ReplicaContext& context) {
      double loss = 0;
      double slope = 0;
      for (int example = context.replica_id_in_sync_group(); example < global_batch; example += size()) {
        const double z = w.read().item() * 1 + b.read().item();
        loss += std::log1p(std::exp(-z)) / global_batch;
        slope += -1 / (1 + std::exp(z)) / global_batch;
      }
      w.assign_sub(0.01 * slope);  // the sum of all
      b.assign_sub(0.01 * slope);
      return loss;
    });
    EXPECT_NEAR(strategy->reduce("SUM", per_replica), printed, 8e-8);
  }
  w.check_sync();
}

TEST_P(Seeds, ValueContextsChooseByNumber) {
  const std::vector<double> list{3, 2, 1};
  const auto values = strategy->distribute_values_from(
      [&](ValueContext at) { return list[static_cast<std::size_t>(at.replica_id_in_sync_group) % 3]; });
  const std::vector<double> results = strategy->local_results(values);
  ASSERT_EQ(results.size(), static_cast<std::size_t>(strategy->num_local_replicas()));
  for (std::size_t i = 0; i < results.size(); ++i)
    EXPECT_EQ(results[i], list[(static_cast<std::size_t>(first()) + i) % 3]);
}

// The mean over batches of 8 and of 6 examples counts every example once.
TEST_P(Seeds, MeansAreOverAllExamples) {
  const auto batches = strategy->run([&](ReplicaContext& context) {
    const int id = context.replica_id_in_sync_group();
    return Tensor<double>(TensorShape{id == 0 ? 8 : 6}, id == 0 ? 1.0 : 2.0);
  });
  const double others = 6.0 * (size() - 1);
  EXPECT_DOUBLE_EQ(strategy->reduce("MEAN", batches, 0).item(), (8 + 2 * others) / (8 + others));
}

// range(10) in batches of 4, of which replicas have 0, 1, ... on: the sums of columns, and of all.
TEST_P(Seeds, SumsAreOverReplicasAndAlongAxes) {
  const auto batches = strategy->run([&](ReplicaContext& context) {
    const auto id = static_cast<float>(context.replica_id_in_sync_group());
    return row({4 * id, 4 * id + 1, 4 * id + 2, 4 * id + 3});
  });
  const auto n = static_cast<float>(size());
  const float base = 4 * n * (n - 1) / 2;
  EXPECT_EQ(strategy->reduce("SUM", batches), row({base, base + n, base + 2 * n, base + 3 * n}));
  EXPECT_EQ(strategy->reduce("SUM", batches, 0).item(), 4 * base + 6 * n);  // 28 of two
}

TEST_P(Seeds, VariablesPrintTheirParts) {
  const Scope scope = strategy->scope();
  const Variable<float> v(1.F, {.name = "Variable"});
  std::ostringstream out;
  out << v;
  EXPECT_PRED2(holds, out.str(), "<tf.Variable 'Variable:0' shape=() dtype=float32, numpy=1.0>");
  if (size() > 1 && !strategy->variable_layout({}).is_shared) {
    EXPECT_TRUE(out.str().starts_with("MirroredVariable:{\n  0: ")) << out.str();
  }
}

// Momentum has a part beside each part of what is trained, and takes every replica to the same place as one replica.
TEST_P(Seeds, SlotsFollowTheirVariables) {
  const Scope scope = strategy->scope();
  Variable<double> w(row({1.0, -2.0}), {.name = "w", .aggregation = Aggregation::sum});
  Variable<double> momentum(Tensor<double>(w.shape()), {.name = "w/momentum", .aggregation = Aggregation::sum});
  Tensor<double> alone = row({1.0, -2.0});
  Tensor<double> slot(TensorShape{2});
  for (int step = 1; step <= 10; ++step) {
    for (std::size_t i = 0; i < 2; ++i) {
      slot[i] = 0.5 * slot[i] + size() * 0.25 * alone[i];
      alone[i] -= 0.125 * slot[i];
    }
    strategy->run([&](ReplicaContext& context) {
      Tensor<double> gradient = w.read();
      for (double& each : gradient) each *= 0.25;
      context.all_reduce(gradient, sum);
      context.merge_call(
          [&](Strategy& all, const PerReplica<Tensor<double>>& gradients) {
            all.update(
                momentum,
                [](Variable<double>& part, const Tensor<double>& by) {
                  Tensor<double> now = part.read();
                  for (std::size_t i = 0; i < by.size(); ++i) now[i] = 0.5 * now[i] + by[i];
                  part.assign(now);
                },
                gradients);
            all.update(w, [&](Variable<double>& part) {
              const Tensor<double> by = momentum.read();
              Tensor<double> now = part.read();
              for (std::size_t i = 0; i < by.size(); ++i) now[i] -= 0.125 * by[i];
              part.assign(now);
            });
          },
          gradient);
    });
    momentum.check_sync();
    w.check_sync();
    EXPECT_EQ(w.read(), alone) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(, Seeds, testing::ValuesIn(layouts()), [](const auto& each) { return each.param.name; });

TEST(SeedsOfNone, AProgramWithoutAStrategyHasTheDefaultOne) {
  EXPECT_EQ(get_strategy().reduce("SUM", 1.), 1.0);
  EXPECT_FALSE(has_strategy());
}

}  // namespace
}  // namespace lockstep::test
