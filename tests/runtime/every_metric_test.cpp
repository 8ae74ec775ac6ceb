// SPDX-License-Identifier: Apache-2.0
// Metrics under every strategy and layout: results are exact, whatever examples each replica has.
#include <gtest/gtest.h>

#include "runtime/train/metrics.hpp"
#include "tests/runtime/begun_calls.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::train {
namespace {

using test::begun_calls;
using test::holds;
using test::refusal;

constexpr std::int64_t measured_examples = 10'007;

class EveryMetric : public test::EveryLayout {
 protected:
  // Makes an object in the strategy's scope.
  template <class M>
  M made() const {
    const Scope inside = strategy->scope();
    return M();
  }
  // Returns a replica's examples, as the first and the number: 10,007 among all, and none for the last of several.
  std::pair<std::int64_t, std::int64_t> examples_of(int replica) const {
    const int with_some = size() > 1 ? size() - 1 : 1;
    const std::int64_t each = measured_examples / with_some;
    if (replica >= with_some) return {measured_examples, 0};
    return {replica * each, replica == with_some - 1 ? measured_examples - replica * each : each};
  }
  static Tensor<float> labels(std::int64_t first, std::int64_t number) {
    Tensor<float> all(TensorShape{number});
    for (std::int64_t i = 0; i < number; ++i) all[static_cast<std::size_t>(i)] = (first + i) % 3 == 0 ? 1.F : 0.F;
    return all;
  }
  static Tensor<float> predictions(std::int64_t first, std::int64_t number) {
    Tensor<float> all(TensorShape{number});
    for (std::int64_t i = 0; i < number; ++i)
      all[static_cast<std::size_t>(i)] = static_cast<float>((first + i) % 7) / 7;
    return all;
  }
};
INSTANTIATE_TEST_SUITE_P(, EveryMetric, testing::ValuesIn(test::layouts()),
                         [](const auto& each) { return each.param.name; });

TEST_P(EveryMetric, CountsEachExampleOnceInOneMessage) {
  std::vector<Metric> all{made<metrics::BinaryAccuracy>(), made<metrics::Precision>(), made<metrics::Recall>(),
                          made<metrics::MeanSquaredError>()};
  metrics::BinaryAccuracy alone_accuracy;
  metrics::Precision alone_precision;
  metrics::Recall alone_recall;
  std::vector<Metric> alone{alone_accuracy, alone_precision, alone_recall};
  const std::uint64_t calls = begun_calls();
  strategy->run([&](ReplicaContext& context) {
    const auto [first, number] = examples_of(context.replica_id_in_sync_group());
    for (std::int64_t at = 0; at < number; at += 1000) {
      const std::int64_t rows = std::min<std::int64_t>(1000, number - at);
      for (Metric& each : all) each.update(labels(first + at, rows), predictions(first + at, rows));
    }
  });
  EXPECT_EQ(begun_calls(), calls);
  const std::vector<float> found = results(all);
  const int calls_of_each = is_on_gpus() ? 2 : 1;  // GPUs vote first who does the work.
  EXPECT_LE(begun_calls() - calls, static_cast<unsigned>(calls_of_each * strategy->num_local_replicas()));
  for (Metric& each : alone) each.update(labels(0, measured_examples), predictions(0, measured_examples));
  EXPECT_EQ(std::vector<float>(found.begin(), found.begin() + 3), results(alone));
  const auto in_replicas = strategy->run([&] { return all[1].result(); });
  for (const float each : in_replicas.local()) EXPECT_EQ(each, found[1]);
  all[0].reset();
  EXPECT_EQ(all[0].result(), 0);
  EXPECT_EQ(all[1].result(), found[1]);
  strategy->run([&] { all[1].reset(); });
  EXPECT_EQ(all[1].result(), 0);
}

// The values are those of TensorFlow's test of metrics in training loops.
TEST_P(EveryMetric, AreUpdatedInTheReplicasOfTheirStrategy) {
  auto mean = made<metrics::Mean>();
  metrics::Mean outside;
  for (int i = 0; i < 10; i += 2) {
    const Tensor<float> batch = row({static_cast<float>(i), static_cast<float>(i + 1)});
    strategy->run([&] { mean.update(batch, row({0.1F, 0.1F})); });
    const Scope inside = strategy->scope();
    outside.update(batch);
  }
  EXPECT_FLOAT_EQ(mean.result(), 4.5F);
  EXPECT_EQ(outside.result(), 4.5F);
  end_calls();
  const auto words = refusal([&] { strategy->run([&] { outside.update(row({1.F})); }); }, Code::replica_failed);
  EXPECT_TRUE(holds(words, "in a replica of another strategy")) << words;
  const Scope inside = strategy->scope();
  if (size() > 1) {
    EXPECT_TRUE(holds(refusal([&] { mean.update(row({1.F})); }, Code::usage), "in cross-replica context"));
  } else {
    mean.update(row({1.F}));
  }
}

TEST_P(EveryMetric, ForgetTheExamplesOfAStepThatFails) {
  auto sum = made<metrics::Sum>();
  strategy->run([&] { sum.update(row({1.F, 2.F})); });
  end_calls();
  const auto failing = [&] {
    strategy->step([&](ReplicaContext& context) {
      sum.update(row({100.F}));
      if (context.replica_id_in_sync_group() == size() - 1) throw std::runtime_error("behind the metric");
      (void)context.all_reduce(1, lockstep::sum);
    });
  };
  EXPECT_TRUE(holds(refusal(failing, Code::replica_failed), "behind the metric"));
  EXPECT_EQ(sum.result(), 3 * static_cast<float>(size()));
}

}  // namespace
}  // namespace lockstep::train
