// SPDX-License-Identifier: Apache-2.0
// Metrics against TensorFlow's values, in a program without a strategy.
#include "runtime/train/metrics.hpp"

#include <gtest/gtest.h>

#include "tests/runtime/train/goldens.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::train {
namespace {

using test::golden_cases;
using test::GoldenCase;
using test::holds;
using test::refusal;

Metric metric_of_case(const GoldenCase& golden) {
  const std::string kind = golden.word("metric");
  const auto threshold = static_cast<float>(golden.number("threshold", golden.number("thresholds", 0.5)));
  const bool from_logits = golden.is_set("from_logits");
  if (kind == "Mean") return metrics::Mean();
  if (kind == "Sum") return metrics::Sum();
  if (kind == "BinaryAccuracy") return metrics::BinaryAccuracy({threshold});
  if (kind == "CategoricalAccuracy") return metrics::CategoricalAccuracy();
  if (kind == "SparseCategoricalAccuracy") return metrics::SparseCategoricalAccuracy();
  if (kind == "Precision") return metrics::Precision({threshold});
  if (kind == "Recall") return metrics::Recall({threshold});
  if (kind == "MeanSquaredError") return metrics::MeanSquaredError();
  if (kind == "BinaryCrossentropy") return metrics::BinaryCrossentropy({from_logits});
  if (kind == "CategoricalCrossentropy") return metrics::CategoricalCrossentropy({from_logits});
  return metrics::SparseCategoricalCrossentropy({from_logits});
}

TEST(Metrics, MeasureAsTensorFlowDoes) {
  int cases = 0;
  for (const GoldenCase& golden : golden_cases("metrics")) {
    if (golden.has("thresholds") && golden.words("thresholds").size() > 1) continue;
    SCOPED_TRACE(golden.name());
    ++cases;
    Metric metric = metric_of_case(golden);
    EXPECT_EQ(metric.result(), golden.tensor("result").item());
    for (int batch = 0; golden.has(text("result.", batch)); ++batch) {
      const auto tensor = [&](const char* key) -> TapeTensor { return golden.tensor(text(key, '.', batch)); };
      const std::string weights = text("sample_weight.", batch);
      const TapeTensor weight = golden.has(weights) ? tensor("sample_weight") : TapeTensor();
      const TapeTensor* const weights_of_batch = golden.has(weights) ? &weight : nullptr;
      if (golden.has(text("values.", batch)))
        metric.update(tensor("values"), tensor("values"), weights_of_batch);
      else
        metric.update(tensor("y_true"), tensor("y_pred"), weights_of_batch);
      EXPECT_NEAR(metric.result(), golden.tensor(text("result.", batch)).item(), 1e-6F) << batch;
    }
    metric.reset();
    EXPECT_EQ(metric.result(), golden.tensor("result").item());
  }
  EXPECT_EQ(cases, 44);
}

TEST(Metrics, TakeTheTypesOfLabels) {
  const TapeTensor scores = Tensor<float>({3, 2}, {0, 1, 1, 0, 0, 1});
  for (const TapeTensor& labels : {TapeTensor(row({1, 0, 0})), TapeTensor(row<std::int64_t>({1, 0, 0})),
                                   TapeTensor(row<std::uint8_t>({1, 0, 0}))}) {
    metrics::SparseCategoricalAccuracy accuracy;
    accuracy.update(labels, scores);
    EXPECT_FLOAT_EQ(accuracy.result(), 2.F / 3);
  }
}

TEST(Metrics, ChooseTheAccuracyByShapes) {
  const auto chosen = [](TensorShape labels, TensorShape predictions) {
    return metric_of("accuracy", labels, predictions);
  };
  Metric binary = chosen({4, 1}, {4, 1});
  binary.update(row({1.F, 0.F}), row({0.6F, 0.6F}));
  EXPECT_EQ(binary.result(), 0.5F);
  Metric sparse = chosen({2}, {2, 3});
  sparse.update(row({2, 1}), Tensor<float>({2, 3}, {0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(sparse.result(), 0.5F);
  Metric column = chosen({2, 1}, {2, 3});
  column.update(Tensor<int>({2, 1}, {2, 1}), Tensor<float>({2, 3}, {0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(column.result(), 0.5F);
  Metric dense = chosen({2, 3}, {2, 3});
  dense.update(Tensor<float>({2, 3}, {0, 0, 1, 0, 1, 0}), Tensor<float>({2, 3}, {0, 0, 1, 1, 0, 0}));
  EXPECT_EQ(dense.result(), 0.5F);
  EXPECT_EQ(dense.name(), "accuracy");
  EXPECT_EQ(metric_of("mse", {2}, {2}).name(), "mse");
  EXPECT_TRUE(holds(refusal([] { metric_of("acuracy", {2}, {2}); }, Code::usage), "unknown metric: 'acuracy'"));
}

TEST(Metrics, RefuseBatchesThatDoNotFit) {
  metrics::BinaryAccuracy accuracy;
  EXPECT_TRUE(holds(refusal([&] { accuracy.update(row({1.F}), row({1.F, 0.F})); }, Code::usage), "labels of shape"));
  metrics::Mean mean;
  EXPECT_TRUE(holds(refusal(
                        [&] {
                          mean.update(row({1.F, 2.F, 3.F}), row({1.F, 1.F}));
                        },
                        Code::usage),
                    "one weight for each example"));
  EXPECT_EQ(mean.result(), 0);
}

}  // namespace
}  // namespace lockstep::train
