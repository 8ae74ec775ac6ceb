// SPDX-License-Identifier: Apache-2.0
// Tests fit, evaluate and predict under every strategy and layout.
#include "runtime/train/fit.hpp"

#include <cmath>
#include <cstring>
#include <numeric>

#include "runtime/default_strategy.hpp"
#include "runtime/train/layers.hpp"
#include "runtime/train/model.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

using namespace train;
using Floats = Tensor<float>;
using Labels = Tensor<std::int32_t>;

constexpr std::int64_t number_of_examples = 37;  // Is no multiple of a batch.

// Returns features, and the class that they belong to.
std::pair<Floats, Labels> some_examples() {
  Floats x({number_of_examples, 3});
  Labels y(TensorShape{number_of_examples});
  for (std::size_t i = 0; i < y.size(); ++i) {
    for (std::size_t axis = 0; axis < 3; ++axis) x[3 * i + axis] = std::sin(static_cast<float>(7 * i + 3 * axis));
    y[i] = x[3 * i] > x[3 * i + 1] ? 1 : 0;
  }
  return {x, y};
}
Dataset<std::tuple<Floats, Labels>> dataset_of(const std::pair<Floats, Labels>& both, std::int64_t batch) {
  return data::from_tensor_slices(std::tuple(both.first, both.second)).batch(batch);
}

// Returns a model with the same weights each time.
Sequential small_model() {
  set_random_seed(5);
  Sequential model(Dense(6, {.activation = Activation::tanh, .input_shape = TensorShape{3}}), Dense(2));
  model.compile(SparseCategoricalCrossentropy({.from_logits = true}), SGD({.learning_rate = 0.2F, .momentum = 0.5F}),
                {"accuracy"});
  return model;
}

struct Trained {
  std::vector<double> losses;
  std::vector<double> accuracies;
  std::vector<float> weights;
  bool operator==(const Trained&) const = default;
};
Trained trained(Sequential& model, const History& history) {
  Trained all{history["loss"], history["accuracy"], {}};
  for (const AnyVariable& each : model.variables()) {
    const Floats value = each.as<float>().read();
    all.weights.insert(all.weights.end(), value.begin(), value.end());
  }
  return all;
}
Trained train_under(Strategy& strategy, const ModelData& data, FitOptions options = {}) {
  const Scope scope = strategy.scope();
  Sequential model = small_model();
  options.epochs = 3;
  options.shuffle = false;
  options.verbose = Verbose::silent;
  return trained(model, model.fit(data, options));
}
void expect_close(const Trained& found, const Trained& expected) {
  ASSERT_EQ(found.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(found.losses[i], expected.losses[i], 2e-6) << "epoch " << i;
    EXPECT_EQ(found.accuracies[i], expected.accuracies[i]) << "epoch " << i;
  }
  ASSERT_EQ(found.weights.size(), expected.weights.size());
  for (std::size_t i = 0; i < expected.weights.size(); ++i) EXPECT_NEAR(found.weights[i], expected.weights[i], 2e-6);
}

class Fits : public EveryLayout {
 protected:
  bool is_last() const {
    return strategy->channel(Channel::input).rank() == strategy->channel(Channel::input).size() - 1;
  }
};

// Losses are divided by the examples of all replicas, of which some have none in the last batch.
TEST_P(Fits, OfUnevenBatchesEqualThoseOfOneReplica) {
  const auto both = some_examples();
  for (const std::int64_t batch : {1, 4, 12}) {
    const FitOptions options{.batch_size = batch};
    const Trained one = train_under(default_strategy(), ModelData(both.first, both.second), options);
    EXPECT_LT(one.losses.back(), one.losses.front());
    expect_close(train_under(*strategy, ModelData(both.first, both.second), options), one);
    expect_close(train_under(*strategy, dataset_of(both, batch)), one);
    // Nobody knows the length of a filtered data set, so the processes' counts travel.
    const auto unknown = dataset_of(both, batch).filter([](const Floats&, const Labels&) { return true; });
    expect_close(train_under(*strategy, unknown), one);
    expect_close(train_under(*strategy, strategy->distribute(dataset_of(both, batch))), one);
  }
}

TEST_P(Fits, OfWeighedExamplesEqualThoseOfOneReplica) {
  const auto both = some_examples();
  Floats weights(TensorShape{number_of_examples});
  for (std::size_t i = 0; i < weights.size(); ++i) weights[i] = static_cast<float>(i % 4);
  const auto trained_in = [&](Strategy& where) {
    const Scope scope = where.scope();
    Sequential model = small_model();
    return model.fit(both.first, both.second,
                     {.epochs = 2,
                      .batch_size = 5,
                      .validation_data = dataset_of(both, 7),
                      .shuffle = false,
                      .sample_weight = weights,
                      .class_weight = {{1, 3.F}},
                      .verbose = Verbose::silent});
  };
  const History one = trained_in(default_strategy());
  const History here = trained_in(*strategy);
  ASSERT_EQ(here.values.size(), 4U);
  for (const auto& [name, numbers] : one.values) {
    for (std::size_t epoch = 0; epoch < 2; ++epoch) EXPECT_NEAR(here[name][epoch], numbers[epoch], 2e-6) << name;
  }
}

// One process has no data at all, and its replicas learn the shapes from the others.
TEST_P(Fits, GoOnInAProcessWithoutData) {
  const auto both = some_examples();
  const auto all = dataset_of(both, 4);
  const auto dataset = strategy->distribute_from([&](const InputContext& context) {
    const bool is_without = context.num_input_pipelines > 1 && context.input_pipeline_id == 0;
    return is_without ? all.take(0) : all;
  });
  const Scope scope = strategy->scope();
  set_random_seed(5);
  Sequential model(Dense(6, Activation::tanh), Dense(2));
  model.compile(SparseCategoricalCrossentropy({.from_logits = true}), SGD(0.2F), {"accuracy"});
  const History history = model.fit(dataset, {.epochs = 2, .verbose = Verbose::silent});
  EXPECT_LT(history["loss"][1], history["loss"][0]);
  EXPECT_EQ(model.variables().front().shape(), TensorShape({3, 6}));
  const Logs logs = model.evaluate(dataset, {.verbose = Verbose::silent});
  EXPECT_GT(logs["accuracy"], 0.3);
  for (const AnyVariable& each : model.variables()) each.as<float>().check_sync();
}

struct TwoLayers {
  Dense hidden{6, Activation::tanh};
  Dense out{2};
  TapeTensor operator()(const TapeTensor& x, bool training) { return out(hidden(x, training), training); }
};

}  // namespace
}  // namespace lockstep::test

template <>
struct lockstep::Fields<lockstep::test::TwoLayers> {
  static auto of(auto& model) { return std::tie(model.hidden, model.out); }
};

namespace lockstep::test {
namespace {

// Its layers are built by the first batch, which trains them already.
TEST_P(Fits, TrainAProgramsOwnStruct) {
  const auto both = some_examples();
  const Scope scope = strategy->scope();
  const auto fit = [&](Model& model) {
    model.compile(SparseCategoricalCrossentropy({.from_logits = true}), SGD(0.2F));
    const History history = model.fit(both.first, both.second,
                                      {.epochs = 2, .batch_size = 12, .shuffle = false, .verbose = Verbose::silent});
    EXPECT_EQ(model.optimizer().iterations(), 8);
    return history["loss"];
  };
  set_random_seed(5);
  TwoLayers layers;
  StructModel own(layers);
  const std::vector<double> of_struct = fit(own);
  set_random_seed(5);
  Sequential same(Dense(6, Activation::tanh), Dense(2));
  EXPECT_EQ(of_struct, fit(same));
}

// Fails in one process only.
TEST_P(Fits, FailInAllProcessesIfACallbackFails) {
  const auto both = some_examples();
  const Scope scope = strategy->scope();
  for (const bool is_behind_batch : {true, false}) {
    Sequential model = small_model();
    const auto fail = [&](std::int64_t number, Logs& /*logs*/) {
      if (is_last() && number == 1) throw std::runtime_error("the disk is full");
    };
    LambdaFunctions functions;
    (is_behind_batch ? functions.on_train_batch_end : functions.on_epoch_end) = fail;
    const auto fit = [&] {
      model.fit(dataset_of(both, 4),
                {.epochs = 3, .callbacks = {LambdaCallback(functions)}, .verbose = Verbose::silent});
    };
    if (is_in_one_process())
      EXPECT_THROW(fit(), std::runtime_error);
    else
      EXPECT_PRED2(holds, refusal(fit, {Code::replica_failed, Code::peer_failed}),
                   "a callback of fit(): the disk is full");
  }
  end_calls();
}

// The data are the guide's: any number of replicas has its numbers.
TEST_P(Fits, PrintTheNumbersOfTheGuide) {
  const auto dataset = data::from_tensors(std::tuple(Floats({1}, 1.F), Floats({1}, 1.F))).repeat(100).batch(10);
  const Scope scope = strategy->scope();
  Sequential model(Dense(1, {.kernel_initializer = constant_initializer(-0.8624095F), .input_shape = TensorShape{1}}));
  model.compile("mse", "sgd");
  const History history = model.fit(dataset, {.epochs = 2, .verbose = Verbose::silent});
  EXPECT_NEAR(history["loss"][0], 2.4687, 5e-5);
  EXPECT_NEAR(history["loss"][1], 1.0912, 5e-5);
  EXPECT_NEAR(model.evaluate(dataset, {.verbose = Verbose::silent})["loss"], 0.6776412, 1e-6);
}

// Replica i takes i + 1 shares of each batch.
TEST_P(Fits, OfBatchesDividedByWeightsEqualThoseOfOneReplica) {
  const auto both = some_examples();
  std::vector<double> shares(static_cast<std::size_t>(size()));
  std::iota(shares.begin(), shares.end(), 1.0);
  const FitOptions options{.batch_size = 12, .input = {.weights = ReplicaWeights(shares)}};
  expect_close(train_under(*strategy, ModelData(both.first, both.second), options),
               train_under(default_strategy(), ModelData(both.first, both.second), {.batch_size = 12}));
}

TEST_P(Fits, HaveTheBitsOfOneProcess) {
  const auto both = some_examples();
  const Trained here = train_under(*strategy, dataset_of(both, 12));
  if (strategy->describe().find("Central") != std::string::npos) return;
  MirroredStrategy together(size(), quick());
  EXPECT_EQ(here, train_under(together, dataset_of(both, 12)));
}

// Each process has data of its own, so only a message tells the examples of a step.
TEST_P(Fits, OfDataOfEachProcessCountEachExampleOnce) {
  const auto dataset = strategy->distribute_from([&](const InputContext& context) {
    const auto mine = static_cast<float>(context.input_pipeline_id + 1);
    const std::int64_t rows = 3 + context.input_pipeline_id;
    return data::from_tensors(std::tuple(Floats({1}, 1.F), Floats({1}, mine)))
        .repeat(rows * strategy->num_local_replicas())
        .batch(rows);
  });
  double squares = 0;
  double rows = 0;
  const int processes = strategy->channel(Channel::input).size();
  for (int i = 1; i <= processes; ++i) {
    const double replicas =
        strategy->channel(Channel::input)
            .all_reduce(i - 1 == strategy->channel(Channel::input).rank() ? strategy->num_local_replicas() : 0, sum);
    squares += replicas * (2 + i) * i * i;
    rows += replicas * (2 + i);
  }
  const Scope scope = strategy->scope();
  Sequential model(Dense(1, {.use_bias = false, .kernel_initializer = zeros(), .input_shape = TensorShape{1}}));
  model.compile("mse", SGD({.learning_rate = 0.F}));
  EXPECT_DOUBLE_EQ(model.fit(dataset, {.verbose = Verbose::silent})["loss"].front(), squares / rows);
  EXPECT_DOUBLE_EQ(model.evaluate(dataset, {.verbose = Verbose::silent})["loss"], squares / rows);
}

// All losses are whole numbers, so that sums have no rounding.
TEST_P(Fits, EvaluateEachOf10007ExamplesOnce) {
  const auto dataset = data::range(10'007).map([](std::int64_t i) {
    return std::tuple(Floats({1}, static_cast<float>(i % 7)), Floats({1}, static_cast<float>(i % 3)));
  });
  double squares = 0;
  for (std::int64_t i = 0; i < 10'007; ++i) squares += static_cast<double>((i % 7 - i % 3) * (i % 7 - i % 3));
  const Scope scope = strategy->scope();
  Sequential model(Dense(1, {.use_bias = false, .kernel_initializer = ones(), .input_shape = TensorShape{1}}));
  model.compile("mse", "sgd");
  EXPECT_EQ(model.evaluate(dataset.batch(64), {.verbose = Verbose::silent})["loss"], squares / 10'007);
  EXPECT_EQ(model.evaluate(dataset.batch(64).filter([](const Floats&, const Floats&) { return true; }),
                           {.verbose = Verbose::silent})["loss"],
            squares / 10'007);
}

TEST_P(Fits, PredictInTheOrderOfTheExamples) {
  Floats x({number_of_examples, 1});
  for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i);
  const Scope scope = strategy->scope();
  Sequential model(Dense(2, {.use_bias = false, .kernel_initializer = ones(), .input_shape = TensorShape{1}}));
  for (const std::int64_t batch : {1, 5, 64}) {
    const Floats predicted = model.predict(x, {.batch_size = batch});
    ASSERT_EQ(predicted.shape(), (TensorShape{number_of_examples, 2}));
    for (std::size_t i = 0; i < predicted.size(); ++i) EXPECT_EQ(predicted[i], static_cast<float>(i / 2));
  }
}

// Asks for the end in one process only.
class StopInOne final : public Callback {
 public:
  StopInOne(bool is_asking, std::int64_t epoch, std::int64_t step)
      : is_asking_(is_asking), epoch_(epoch), step_(step) {}
  std::int64_t steps = 0;
  void on_epoch_begin(std::int64_t epoch, Logs& /*logs*/) override { now_ = epoch; }
  void on_train_batch_end(std::int64_t step, Logs& /*logs*/) override {
    ++steps;
    if (is_asking_ && now_ == epoch_ && step == step_) stop_training();
  }
  void on_epoch_end(std::int64_t epoch, Logs& /*logs*/) override {
    if (is_asking_ && epoch == epoch_) stop_training();
  }

 private:
  bool is_asking_;
  std::int64_t epoch_;
  std::int64_t step_;
  std::int64_t now_ = 0;
};

TEST_P(Fits, StopInAllProcessesIfOneAsksForIt) {
  const auto both = some_examples();
  const Scope scope = strategy->scope();
  for (const std::int64_t step : {2, 99}) {
    Sequential model = small_model();
    StopInOne stop(is_last(), 1, step);
    const History history =
        model.fit(dataset_of(both, 4), {.epochs = 9, .callbacks = {&stop}, .verbose = Verbose::silent});
    EXPECT_EQ(history.epochs.size(), 2U);
    EXPECT_EQ(stop.steps, step == 2 ? 13 : 20);
    EXPECT_EQ(model.optimizer().iterations(), stop.steps);
  }
}

// Asks for the end behind the first epoch. Only the chief has a display.
class StoppingDisplay final : public Progress {
 public:
  explicit StoppingDisplay(Sequential& model) : model_(model) {}
  void begin(std::int64_t /*epoch*/, std::int64_t /*epochs*/, std::optional<std::int64_t> /*steps*/) override {}
  void end(std::int64_t /*done*/, const Logs& /*logs*/) override { model_.stop_training(); }

 private:
  Sequential& model_;
};

TEST_P(Fits, StopInAllProcessesIfTheDisplayAsksForIt) {
  const auto both = some_examples();
  const Scope scope = strategy->scope();
  Sequential model = small_model();
  const History history =
      model.fit(dataset_of(both, 4), {.epochs = 3, .progress = std::make_shared<StoppingDisplay>(model)});
  EXPECT_EQ(history.epochs.size(), 1U);
}

TEST_P(Fits, OfEndlessDataAreRefusedByAllProcesses) {
  const auto both = some_examples();
  const Scope scope = strategy->scope();
  Sequential model = small_model();
  const auto endless = dataset_of(both, 4).repeat();
  EXPECT_PRED2(holds, refusal([&] { model.fit(endless, {.verbose = Verbose::silent}); }, Code::usage),
               "infinitely repeating dataset");
  // One process has an end; the others do not.
  const auto own = strategy->distribute_from(
      [&](const InputContext& context) { return context.input_pipeline_id == 0 ? endless : dataset_of(both, 4); });
  EXPECT_PRED2(holds, refusal([&] { model.fit(own, {.verbose = Verbose::silent}); }, Code::usage),
               "infinitely repeating dataset");
  EXPECT_EQ(model.fit(endless, {.epochs = 2, .steps_per_epoch = 3, .verbose = Verbose::silent})["loss"].size(), 2U)
      << "and all go on";
}

TEST_P(Fits, ShowProgressInTheChiefOnly) {
  const auto both = some_examples();
  const Scope scope = strategy->scope();
  Sequential model = small_model();
  std::ostringstream shown;
  model.fit(both.first, both.second,
            {.batch_size = 10, .validation_split = 0.2, .verbose = Verbose::lines, .output = &shown});
  EXPECT_EQ(shown.str().empty(), first() != 0);
  if (first() == 0) {
    EXPECT_PRED2(holds, shown.str(), "Epoch 1/1\n3/3 - loss: ");
    EXPECT_PRED2(holds, shown.str(), " - val_accuracy: ");
  }
  std::ostringstream bar;
  model.fit(dataset_of(both, 2), {.verbose = Verbose::bar, .output = &bar});
  EXPECT_EQ(bar.str().empty(), first() != 0);
}

INSTANTIATE_TEST_SUITE_P(All, Fits, testing::ValuesIn(layouts()), [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
