// SPDX-License-Identifier: Apache-2.0
// Optimizers and schedules against TensorFlow's values, in a program without a strategy.
#include "runtime/train/optimizer.hpp"

#include <gtest/gtest.h>

#include "runtime/train/ops.hpp"
#include "tests/runtime/train/goldens.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::train {
namespace {

using test::expect_near;
using test::golden_cases;
using test::GoldenCase;
using test::holds;
using test::refusal;

Schedule schedule_of(const GoldenCase& golden) {
  const auto number = [&](const char* key, double otherwise = 0) {
    return static_cast<float>(golden.number(key, otherwise));
  };
  const auto steps = static_cast<std::int64_t>(golden.number("decay_steps", 1));
  const std::string kind = golden.word("schedule");
  if (kind == "ExponentialDecay")
    return ExponentialDecay{number("initial_learning_rate"), steps, number("decay_rate"), golden.is_set("staircase")};
  if (kind == "CosineDecay") {
    CosineDecay all{number("initial_learning_rate"), steps, number("alpha")};
    if (golden.has("warmup_target")) all.warmup_target = number("warmup_target");
    all.warmup_steps = static_cast<std::int64_t>(golden.number("warmup_steps"));
    return all;
  }
  PiecewiseConstant all{golden.integers("boundaries"), {}};
  for (const std::string& each : golden.words("values")) all.values.push_back(std::strtof(each.c_str(), nullptr));
  return all;
}

LearningRate rate_of(const GoldenCase& golden, const std::vector<GoldenCase>& all) {
  const std::string word = golden.word("learning_rate");
  for (const GoldenCase& each : all) {
    if (each.name() == word) return schedule_of(each);
  }
  return std::strtof(word.c_str(), nullptr);
}

Optimizer optimizer_of(const GoldenCase& golden, const std::vector<GoldenCase>& all) {
  const auto number = [&](const char* key, double otherwise = 0) {
    return static_cast<float>(golden.number(key, otherwise));
  };
  const LearningRate rate = rate_of(golden, all);
  const float decay = number("weight_decay");
  const OptimizerOptions others{.clip_norm = number("global_clipnorm"),
                                .accumulate_steps = static_cast<int>(golden.number("gradient_accumulation_steps", 1))};
  const std::string kind = golden.word("optimizer");
  if (kind == "SGD") return SGD({rate, number("momentum"), golden.is_set("nesterov"), decay}, others);
  if (kind == "Adam")
    return Adam({rate, golden.number("beta_1"), golden.number("beta_2"), number("epsilon"), decay}, others);
  if (kind == "AdamW")
    return AdamW({rate, decay, golden.number("beta_1"), golden.number("beta_2"), number("epsilon")}, others);
  return Adagrad({rate, number("initial_accumulator_value"), number("epsilon"), decay}, others);
}

Tensor<float> row_of(const Tensor<float>& all, std::int64_t step) {
  std::vector<std::int64_t> lengths = all.shape().lengths();
  lengths.erase(lengths.begin());
  const TensorShape shape(std::move(lengths));
  return Tensor<float>(shape, all.span().subspan(static_cast<std::size_t>(step) * shape.count(), shape.count()));
}

TEST(Optimizers, TakeTheStepsOfTensorFlow) {
  const std::vector<GoldenCase> all = golden_cases("optimizers");
  int cases = 0;
  for (const GoldenCase& golden : all) {
    const bool is_of_rows = golden.name().starts_with("rows/");
    if (!golden.has("optimizer") || is_of_rows || golden.has("clipnorm") || golden.has("clipvalue")) continue;
    SCOPED_TRACE(golden.name());
    ++cases;
    Optimizer optimizer = optimizer_of(golden, all);
    Variable<float> variables[] = {Variable(golden.tensor("start.0")), Variable(golden.tensor("start.1"))};
    const Tensor<float> gradients[] = {golden.tensor("gradient.0"), golden.tensor("gradient.1")};
    for (std::int64_t step = 0; step < gradients[0].shape()[0]; ++step) {
      optimizer.apply(
          {{variables[0], Gradient(row_of(gradients[0], step))}, {variables[1], Gradient(row_of(gradients[1], step))}});
      for (const std::size_t which : {0U, 1U})
        expect_near(variables[which].read(), row_of(golden.tensor(which == 0 ? "after.0" : "after.1"), step), 2e-6,
                    1e-6);
    }
    const auto accumulated = static_cast<std::int64_t>(golden.number("gradient_accumulation_steps", 1));
    EXPECT_EQ(optimizer.iterations(), gradients[0].shape()[0] / accumulated);
  }
  EXPECT_EQ(cases, 23);
}

TEST(Optimizers, ChangeRowsAsTensorFlowDoes) {
  const std::vector<GoldenCase> all = golden_cases("optimizers");
  int cases = 0;
  for (const GoldenCase& golden : all) {
    if (!golden.name().starts_with("rows/")) continue;
    SCOPED_TRACE(golden.name());
    ++cases;
    // Adam squares sums of rows here; TensorFlow adds squares of rows.
    const Tensor<float> after = golden.tensor(golden.word("optimizer") == "Adam" ? "after_dense" : "after");
    Optimizer optimizer = optimizer_of(golden, all);
    Variable<float> table(golden.tensor("start"));
    for (std::int64_t step = 0; step < after.shape()[0]; ++step) {
      const Tensor<std::int64_t> indices = golden.tensor<std::int64_t>(text("indices.", step));
      const IndexedSlices<float> rows(golden.tensor(text("values.", step)), {indices.begin(), indices.end()},
                                      table.shape());
      optimizer.apply({{table, Gradient(rows)}});
      expect_near(table.read(), row_of(after, step), 2e-6, 1e-6);
    }
  }
  EXPECT_EQ(cases, 4);
}

TEST(Optimizers, ClipByTheGlobalNorm) {
  for (const GoldenCase& golden : golden_cases("optimizers")) {
    if (!golden.name().starts_with("clip_by_global_norm/")) continue;
    SCOPED_TRACE(golden.name());
    SGD optimizer(SgdOptions{.learning_rate = 1}, {.clip_norm = static_cast<float>(golden.number("clip_norm"))});
    Variable<float> first(Tensor<float>(golden.tensor("gradient.0").shape()));
    Variable<float> second(Tensor<float>(golden.tensor("gradient.1").shape()));
    optimizer.apply({{first, Gradient(golden.tensor("gradient.0"))}, {second, Gradient(golden.tensor("gradient.1"))}});
    expect_near(-first.read(), golden.tensor("clipped.0"), 1e-6, 1e-7);
    expect_near(-second.read(), golden.tensor("clipped.1"), 1e-6, 1e-7);
  }
}

TEST(Schedules, HaveTheRatesOfTensorFlow) {
  int cases = 0;
  for (const GoldenCase& golden : golden_cases("optimizers")) {
    if (!golden.name().starts_with("schedule/")) continue;
    SCOPED_TRACE(golden.name());
    ++cases;
    const Schedule schedule = schedule_of(golden);
    const Tensor<std::int64_t> steps = golden.tensor<std::int64_t>("step");
    Tensor<float> rates(steps.shape());
    for (std::size_t i = 0; i < steps.size(); ++i) rates[i] = schedule(steps[i]);
    expect_near(rates, golden.tensor("rate"), 1e-6, 0);
  }
  EXPECT_EQ(cases, 7);
}

TEST(Schedules, WarmUpAndScaleWithTheBatch) {
  const Schedule rate = warm_up(constant(0.8F), 4);
  EXPECT_FLOAT_EQ(rate(0), 0.2F);
  EXPECT_FLOAT_EQ(rate(3), 0.8F);
  EXPECT_FLOAT_EQ(rate(100), 0.8F);
  EXPECT_EQ(scaled_lr(10, {{5, 0.1F}, {10, 0.15F}}), 0.15F);
  EXPECT_TRUE(holds(refusal([] { scaled_lr(7, {{5, 0.1F}, {10, 0.15F}}); }, Code::usage), "rates for 5, 10"));
  EXPECT_TRUE(holds(refusal([] { ExponentialDecay{.decay_steps = 0}(0); }, Code::usage), "within 0 steps"));
  EXPECT_TRUE(holds(refusal([] { CosineDecay{.decay_steps = 0}(0); }, Code::usage), "within 0 steps"));
}

TEST(Optimizers, MinimizeAlongATape) {
  Variable w(row({1.F, 2.F}), {.name = "w"});
  Variable unused(3.F, {.name = "unused"});
  SGD optimizer({.learning_rate = 0.5F, .momentum = 0.9F});
  for (int step = 0; step < 2; ++step) {
    Tape tape;
    const TapeTensor loss = square(TapeTensor(w));
    optimizer.minimize(tape, loss, {w, unused});
  }
  EXPECT_EQ(w.read(), row({-0.9F, -1.8F}));  // The momentum was -w, then -0.9 w; and the gradient was 0.
  EXPECT_EQ(unused.read().item(), 3);
  ASSERT_EQ(optimizer.variables().size(), 3U);
  EXPECT_TRUE(optimizer.variables()[0].name() == "sgd/iteration" && optimizer.variables()[1].name() == "sgd/momentum/w")
      << optimizer.variables()[1].name();
}

TEST(Optimizers, AreNamedByWords) {
  for (const auto* const word : {"sgd", "adam", "AdamW", "adagrad"}) {
    Optimizer optimizer(word);
    Variable w(1.F);
    optimizer.apply({{w, Gradient(Tensor<float>(1.F))}});
    EXPECT_LT(w.read().item(), 1);
    EXPECT_FLOAT_EQ(optimizer.learning_rate(), std::string(word) == "sgd" ? 0.01F : 0.001F);
  }
  EXPECT_TRUE(holds(refusal([] { Optimizer("sdg"); }, Code::usage), "unknown optimizer: 'sdg'"));
}

TEST(Optimizers, ChangeTheirRateUnlessItIsASchedule) {
  SGD optimizer(0.1F);
  Variable w(1.F);
  optimizer.set_learning_rate(0.5F);
  EXPECT_EQ(optimizer.learning_rate(), 0.5F);
  optimizer.apply({{w, Gradient(Tensor<float>(1.F))}});
  EXPECT_EQ(w.read().item(), 0.5F);
  SGD scheduled(PiecewiseConstant{{0}, {1.F, 0.25F}});
  EXPECT_EQ(scheduled.learning_rate(), 1);
  scheduled.apply({{w, Gradient(Tensor<float>(1.F))}});
  EXPECT_EQ(scheduled.learning_rate(), 0.25F);
  EXPECT_TRUE(holds(refusal([&] { scheduled.set_learning_rate(1); }, Code::usage), "which has a schedule"));
  EXPECT_TRUE(holds(refusal([&] { optimizer.set_learning_rate(NAN); }, Code::usage), "to NaN"));
}

TEST(Optimizers, AddUpGradientsThatTheLastStepOfARoundDoesNotHave) {
  Variable v(1.F, {.name = "v"});
  Variable w(1.F, {.name = "w"});
  SGD optimizer(1.F, {.accumulate_steps = 2});
  const Gradient one(Tensor<float>(1.F));
  for (int round = 0; round < 2; ++round) {
    optimizer.apply({{v, one}, {w, one}});
    optimizer.apply({{v, Gradient()}, {w, one}});
  }
  EXPECT_EQ(v.read().item(), 0) << "a half in each round";
  EXPECT_EQ(w.read().item(), -1);
  optimizer.apply({{v, one}, {w, one}});
  EXPECT_TRUE(holds(refusal([&] { optimizer.apply({{w, one}}); }, Code::usage), "got other variables"));
}

TEST(Optimizers, RefuseWhatTheyCannotChange) {
  SGD optimizer;
  Variable w(row({1.F, 2.F}), {.name = "refused"});
  optimizer.apply({});
  EXPECT_EQ(optimizer.iterations(), 0);
  EXPECT_TRUE(holds(refusal(
                        [&] {
                          optimizer.apply({{w, Gradient()}});
                        },
                        Code::usage),
                    "No gradients provided for any variable: 'refused'"));
  EXPECT_TRUE(holds(refusal([&] { optimizer.apply({{w, Gradient(row({1.F, 2.F, 3.F}))}}); }, Code::usage), "shape"));
  EXPECT_TRUE(holds(refusal(
                        [&] {
                          const IndexedSlices<float> rows(Tensor<float>(TensorShape{1}), {9}, TensorShape{10});
                          optimizer.apply({{w, Gradient(rows)}});
                        },
                        Code::usage),
                    "rows of a tensor of shape (10,) as the gradient of variable 'refused' of shape (2,)"));
  Variable wide(1.0);
  EXPECT_TRUE(holds(refusal([&] { optimizer.apply({{wide, Gradient(Tensor<double>(1.0))}}); }, Code::usage), "of f64"));
  EXPECT_EQ(optimizer.iterations(), 0);
  EXPECT_TRUE(holds(refusal([] { SGD(0.1F).reducer(); }, Code::usage), "no gradients yet"));
  EXPECT_TRUE(holds(refusal([] { SGD(0.1F, {.accumulate_steps = 0}); }, Code::usage), "accumulate_steps = 0"));
}

}  // namespace
}  // namespace lockstep::train
