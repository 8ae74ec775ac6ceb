// SPDX-License-Identifier: Apache-2.0
// Losses: values and gradients of TensorFlow's, averages of replicas, and refusals.
#include "runtime/train/losses.hpp"

#include <gtest/gtest.h>

#include <functional>

#include "runtime/default_strategy.hpp"
#include "runtime/train/ops.hpp"
#include "runtime/train/tape.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/runtime/train/goldens.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::train {
namespace {

using lockstep::test::expect_near;
using lockstep::test::golden_cases;
using lockstep::test::GoldenCase;
using lockstep::test::quick;
using lockstep::test::refusal;

Loss loss_of(const GoldenCase& golden, Reduction reduction) {
  const std::string kind = golden.word("loss");
  const bool from_logits = golden.is_set("from_logits");
  const CrossentropyLossOptions options{from_logits, golden.number("label_smoothing"), reduction};
  if (kind == "MeanSquaredError") return MeanSquaredError({.reduction = reduction});
  if (kind == "BinaryCrossentropy") return BinaryCrossentropy(options);
  if (kind == "CategoricalCrossentropy") return CategoricalCrossentropy(options);
  if (kind == "SparseCategoricalCrossentropy")
    return SparseCategoricalCrossentropy({.from_logits = from_logits, .reduction = reduction});
  throw std::runtime_error("no loss " + kind);
}

std::string word_of(const GoldenCase& golden) { return golden.word("loss") + golden.word("function"); }

TapeTensor labels_of(const GoldenCase& golden) {
  const bool has_classes = word_of(golden).find("parse") != std::string::npos;
  return has_classes ? TapeTensor(golden.tensor<std::int32_t>("y_true")) : TapeTensor(golden.tensor("y_true"));
}

TEST(Losses, GiveTensorFlowsValuesAndGradients) {
  const std::pair<std::string, Reduction> reductions[] = {{"none", Reduction::none},
                                                          {"sum", Reduction::sum},
                                                          {"sum_over_batch_size", Reduction::automatic},
                                                          {"sum_over_batch_size", Reduction::sum_over_batch_size}};
  for (const GoldenCase& golden : golden_cases("losses")) {
    if (golden.word("loss").empty()) continue;
    SCOPED_TRACE(golden.name());
    const TapeTensor labels = labels_of(golden);
    const TapeTensor predictions = golden.tensor("y_pred");
    TapeTensor weights;
    if (golden.has("sample_weight")) weights = golden.tensor("sample_weight");
    for (const auto& [key, reduction] : reductions) {
      Tape tape;
      tape.watch(predictions);
      const TapeTensor loss =
          loss_of(golden, reduction)(labels, predictions, golden.has("sample_weight") ? &weights : nullptr);
      expect_near(loss.to<float>(), golden.tensor(key), 1e-6);
      if (key == "sum_over_batch_size")
        expect_near(tape.gradient(loss, predictions).to<float>(), golden.tensor("grad.y_pred"), 1e-6);
    }
  }
}

TEST(Losses, AreFunctionsToo) {
  for (const GoldenCase& golden : golden_cases("losses")) {
    if (golden.word("function") != "sparse_categorical_crossentropy") continue;
    SCOPED_TRACE(golden.name());
    const TapeTensor predictions = golden.tensor("y_pred");
    Tape tape;
    tape.watch(predictions);
    const TapeTensor rows =
        sparse_categorical_crossentropy(labels_of(golden), predictions, golden.is_set("from_logits"));
    expect_near(rows.to<float>(), golden.tensor("rows"), 1e-6);
    expect_near(tape.gradient(rows, predictions).to<float>(), golden.tensor("grad.y_pred"), 1e-6);
  }
}

TEST(Losses, TakeLabelsOfAnyInteger) {
  const TapeTensor logits = Tensor<float>({2, 3}, {1, 2, 3, 3, 1, 0});
  const Tensor<float> expected = sparse_categorical_crossentropy(row<std::int32_t>({2, 0}), logits, true).to<float>();
  EXPECT_EQ(sparse_categorical_crossentropy(row<std::int64_t>({2, 0}), logits, true).to<float>(), expected);
  EXPECT_EQ(sparse_categorical_crossentropy(row<std::uint8_t>({2, 0}), logits, true).to<float>(), expected);
  EXPECT_EQ(sparse_categorical_crossentropy(row({2.F, 0.F}), logits, true).to<float>(), expected);
  EXPECT_EQ(mean_squared_error(Tensor<std::int32_t>({2, 1}, {3, 5}), Tensor<float>({2, 1}, {1, 4})).to<float>(),
            row({4.F, 1.F}));
}

TEST(Losses, AreMadeByWords) {
  const Tensor<float> labels({2, 2}, {0, 1, 1, 0});
  const Tensor<float> predictions({2, 2}, {0.25F, 0.75F, 0.5F, 0.5F});
  EXPECT_EQ(Loss("mse").name(), "mean_squared_error");
  EXPECT_EQ(Loss("mse")(labels, predictions).item(),
            mean_squared_error(labels, predictions).to<float>()[0] / 2 + 0.125F);
  for (const std::string_view word : {"binary_crossentropy", "categorical_crossentropy"})
    EXPECT_EQ(Loss(word).name(), word);
  EXPECT_EQ(Loss("sparse_categorical_crossentropy").per_example(row({1, 0}), predictions).shape(), TensorShape{2});
}

TEST(AverageLosses, AreTensorFlows) {
  for (const GoldenCase& golden : golden_cases("losses")) {
    const bool is_average = golden.word("function") == "compute_average_loss";
    if (!is_average && golden.word("function") != "scale_regularization_loss") continue;
    SCOPED_TRACE(golden.name());
    MirroredStrategy strategy(static_cast<int>(golden.number("replicas")), quick());
    const auto results = strategy.run([&] {
      if (!is_average) return scale_regularization_loss(golden.tensor("loss")).to<float>();
      AverageOptions options;
      if (golden.has("sample_weight")) options.sample_weight = golden.tensor("sample_weight");
      if (golden.has("global_batch_size"))
        options.global_batch_size = static_cast<std::int64_t>(golden.number("global_batch_size"));
      return compute_average_loss(golden.tensor("per_example_loss"), options).to<float>();
    });
    for (const Tensor<float>& each : results.local()) expect_near(each, golden.tensor("result"), 1e-6);
  }
}

struct LossRefusal {
  std::string_view name;
  std::string_view words;
  std::function<void(Strategy&)> use;
};

TEST(Losses, RefuseWrongUses) {
  const Tensor<float> two({2, 1}, 1.F);
  const auto in_replicas = [&](const Loss& loss) {
    return [&, loss](Strategy& strategy) { strategy.run([&] { loss(two, two); }); };
  };
  const std::string_view reduction =
      "Please use `Reduction.SUM` or `Reduction.NONE` for loss reduction when losses are used with a strategy";
  const LossRefusal table[] = {
      {"automatic", reduction, in_replicas(MeanSquaredError())},
      {"sum_over_batch_size", reduction,
       in_replicas(BinaryCrossentropy({.reduction = Reduction::sum_over_batch_size}))},
      {"in_scope", reduction,
       [&](Strategy& strategy) {
         const Scope scope = strategy.scope();
         Loss("mse")(two, two);
       }},
      {"average_for_all",
       "You are calling `compute_average_loss` in cross replica context, while it was expected to be called in replica "
       "context",
       [&](Strategy& strategy) {
         const Scope scope = strategy.scope();
         compute_average_loss(row({1.F}));
       }},
      {"regularization_for_all",
       "You are calling `scale_regularization_loss` in cross replica context, while it was expected to be called in "
       "replica context",
       [&](Strategy& strategy) {
         const Scope scope = strategy.scope();
         scale_regularization_loss(1.F);
       }},
      {"scalar", "Expected a tensor with at least rank 1. Received a scalar",
       [](Strategy&) { compute_average_loss(1.F); }},
      {"negative", "`global_batch_size` must be non-negative. Received: -1",
       [](Strategy&) { compute_average_loss(row({1.F}), {.global_batch_size = -1}); }},
      {"word", "a loss of the name 'msq'", [](Strategy&) { Loss("msq"); }},
      {"shapes", "labels and predictions must have the same shape. Received: labels.shape=(2, 1), ",
       [&](Strategy&) {
         mean_squared_error(two, Tensor<float>({2, 2}));
       }},
      {"classes", "must have rank (ndim) `target.ndim - 1`. Received: target.shape=(3,), output.shape=(2, 4)",
       [](Strategy&) {
         sparse_categorical_crossentropy(row({1, 2, 3}), Tensor<float>({2, 4}));
       }},
      {"weights", "weights of the shape (3,) for losses of the shape (1,)",
       [](Strategy&) {
         compute_average_loss(row({1.F}), {.sample_weight = TapeTensor(row({1.F, 2.F, 3.F}))});
       }},
  };
  MirroredStrategy strategy(2, quick());
  for (const LossRefusal& each : table) {
    SCOPED_TRACE(each.name);
    const std::string said = refusal([&] { each.use(strategy); }, {Code::usage, Code::replica_failed});
    EXPECT_NE(said.find(each.words), std::string::npos) << said;
  }
  EXPECT_EQ(Loss("mse")(two, two).item(), 0);  // Without a strategy it is no fault.
}

}  // namespace
}  // namespace lockstep::train
