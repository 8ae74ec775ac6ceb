// SPDX-License-Identifier: Apache-2.0
// Weights of replicas: shares, batch sizes, measured speeds, and means by weight under every strategy and layout.
#include "runtime/replica_weights.hpp"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/runtime/layouts.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

using Sizes = std::vector<std::int64_t>;

class Weights : public EveryLayout {
 protected:
  // Replica i counts i + 1 times.
  ReplicaWeights rising() const {
    std::vector<double> all(static_cast<std::size_t>(size()));
    std::iota(all.begin(), all.end(), 1.0);
    return ReplicaWeights(all);
  }
  // The weighted mean of the values 10, 20, 30, ...
  double mean_of_tens() const {
    double weighted = 0;
    for (int i = 1; i <= size(); ++i) weighted += 10.0 * i * i;
    return weighted / (size() * (size() + 1) / 2.0);
  }
};

TEST_P(Weights, ShareOutBatchesThatAddUp) {
  EXPECT_EQ(ReplicaWeights({1, 3}).batch_sizes(64), (Sizes{16, 48}));
  EXPECT_EQ(ReplicaWeights({1, 1, 1}).batch_sizes(8), (Sizes{3, 3, 2}));
  EXPECT_EQ(ReplicaWeights({0, 2, 5}).batch_sizes(1), (Sizes{0, 0, 1}));
  EXPECT_EQ(ReplicaWeights({1, 1}).batch_sizes(0), (Sizes{0, 0}));
  EXPECT_EQ(ReplicaWeights({1, 3}).to_string(), "0.25, 0.75");
  for (std::int64_t batch = 0; batch < 300; ++batch) {
    const Sizes sizes = ReplicaWeights({0.3, 1.7, 0, 2.9, 1e-9}).batch_sizes(batch);
    EXPECT_EQ(std::accumulate(sizes.begin(), sizes.end(), std::int64_t{0}), batch);
  }
}

TEST_P(Weights, FollowMeasuredSpeed) {
  const double examples[] = {100, 100, 50};
  const double seconds[] = {1, 4, 1};
  EXPECT_EQ(ReplicaWeights::by_speed(examples, seconds).batch_sizes(700), (Sizes{400, 100, 200}));
  const auto sizes = strategy->run([](ReplicaContext& context) {
    const int me = context.replica_id_in_sync_group();
    const Sizes all = measured_weights(context, 64, 1.0 / (me + 1)).batch_sizes(1000);
    return std::accumulate(all.begin(), all.end(), std::int64_t{0}) * 1'000'000 + all.back();
  });
  const Sizes wanted = rising().batch_sizes(1000);
  for (const std::int64_t each : sizes.local()) EXPECT_EQ(each, 1'000'000'000 + wanted.back());
}

TEST_P(Weights, WeighMeansInReplicasAndForAll) {
  const ReplicaWeights weights = rising();
  const auto tens = strategy->run([&](ReplicaContext& context) {
    const auto mine = static_cast<float>(10 * (context.replica_id_in_sync_group() + 1));
    std::pair both(mine, Tensor<double>(TensorShape{2}, mine));
    weighted_mean(context, both, weights);
    EXPECT_NEAR(both.first, mean_of_tens(), 1e-4);
    EXPECT_NEAR(both.second[1], mean_of_tens(), 1e-9);
    EXPECT_NEAR(weighted_mean(context, static_cast<double>(mine), weights), mean_of_tens(), 1e-9);
    return static_cast<double>(mine);
  });
  EXPECT_NEAR(weighted_mean(*strategy, tens, weights), mean_of_tens(), 1e-9);
}

TEST_P(Weights, ThatDifferBetweenReplicasAreAMismatch) {
  if (size() == 1) GTEST_SKIP() << lacks("needs two replicas");
  const ReplicaWeights weights = rising();
  const ReplicaWeights others(std::vector<double>(static_cast<std::size_t>(size()), 1.0));
  const auto mean = [&](ReplicaContext& context) {
    (void)weighted_mean(context, 1.0, context.replica_id_in_sync_group() == 0 ? weights : others);
  };
  const std::string words = refusal([&] { strategy->run(mean); }, Code::replica_failed);
  // The process that finds it knows the text of its own tag alone.
  for (const char* const part : {"E016", "tagged \"weights "}) EXPECT_PRED2(holds, words, part);
}

TEST_P(Weights, AreRefusedIfTheyMeanNothing) {
  const auto words = [](const std::function<void()>& call) { return refusal(call, Code::usage); };
  EXPECT_PRED2(holds, words([] { ReplicaWeights({1, -1}); }), "replica 1 has the weight -1");
  EXPECT_PRED2(holds, words([] { ReplicaWeights({1, std::numeric_limits<double>::infinity()}); }), "the weight inf");
  EXPECT_PRED2(holds, words([] { ReplicaWeights({0, 0}); }), "add up to 0");
  EXPECT_PRED2(holds, words([] { ReplicaWeights(std::vector<double>()); }), "the weights of 0 replicas");
  EXPECT_PRED2(holds, words([] { (void)ReplicaWeights({1}).batch_sizes(-1); }), "a global batch of -1");
  const double examples[] = {100, 0};
  const double seconds[] = {1, 1};
  EXPECT_PRED2(holds, words([&] { (void)ReplicaWeights::by_speed(examples, seconds); }),
               "replica 1 computed 0 examples");
  const ReplicaWeights one_more(std::vector<double>(static_cast<std::size_t>(size()) + 1, 1.0));
  const auto ones = strategy->run([] { return 1.0; });
  EXPECT_PRED2(holds, words([&] { (void)weighted_mean(*strategy, ones, one_more); }),
               text(size() + 1, " weights for ", size(), " replicas"));
}

INSTANTIATE_TEST_SUITE_P(All, Weights, testing::ValuesIn(layouts()), [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
