// SPDX-License-Identifier: Apache-2.0
// Tests fit, evaluate and predict beside Keras' values, and callbacks, displays and event files.
#include "runtime/train/fit.hpp"

#include <cstring>
#include <filesystem>
#include <functional>
#include <limits>
#include <regex>
#include <sstream>

#include "runtime/data/files/tf_record.hpp"
#include "runtime/default_strategy.hpp"
#include "runtime/train/event_file.hpp"
#include "runtime/train/layers.hpp"
#include "runtime/train/model.hpp"
#include "runtime/train/train_and_evaluate.hpp"
#include "tests/runtime/told_apart.hpp"
#include "tests/runtime/train/goldens.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

using namespace train;
using Floats = Tensor<float>;
using Values = std::vector<double>;

// ---- Keras' values ----

const std::vector<std::string> weight_names{"kernel.0", "bias.0", "kernel.1", "bias.1"};

// Returns the model of fit.txt, not compiled yet. A case may have a second layer of its own.
Sequential golden_model(const GoldenCase& golden, const GoldenCase& data) {
  Sequential model(Dense(8, {.activation = Activation::relu, .input_shape = TensorShape{4}}),
                   Dense(static_cast<std::int64_t>(golden.number("units", 3)),
                         {.activation = Activation(golden.word("activation", "linear"))}));
  const std::vector<AnyVariable> variables = model.variables();
  for (std::size_t i = 0; i < weight_names.size(); ++i)
    variables[i].as<float>().assign((golden.has(weight_names[i]) ? golden : data).tensor(weight_names[i]));
  return model;
}

void compile_golden(Sequential& model, const GoldenCase& golden) {
  if (golden.has("loss")) return model.compile(Loss(golden.word("loss")), "sgd", {"accuracy"});
  CompileOptions options{.loss = SparseCategoricalCrossentropy({.from_logits = true}),
                         .optimizer = SGD({.learning_rate = 0.1F}),
                         .metrics = {"accuracy"}};
  if (golden.is_set("weighted_metrics")) options.weighted_metrics = {"accuracy"};
  model.compile(options);
}

std::vector<AnyCallback> golden_callbacks(const GoldenCase& golden) {
  const std::string name = golden.word("callback");
  if (name == "EarlyStopping")
    return {EarlyStopping({.min_delta = golden.number("min_delta"),
                           .patience = static_cast<std::int64_t>(golden.number("patience")),
                           .restore_best_weights = golden.is_set("restore_best_weights")})};
  if (name == "LearningRateScheduler")
    return {LearningRateScheduler(
        [by = static_cast<float>(golden.number("divide"))](std::int64_t, float rate) { return rate / by; })};
  EXPECT_EQ(name, "");
  return {};
}

// Returns the options of a case.
FitOptions golden_options(const GoldenCase& given, const GoldenCase& data) {
  FitOptions options{.epochs = static_cast<std::int64_t>(given.number("epochs", given.has("loss") ? 1 : 3)),
                     .batch_size = 16,
                     .callbacks = golden_callbacks(given),
                     .shuffle = false,
                     .verbose = Verbose::silent};
  const auto optional = [&](const std::string& name) {
    return given.has(name) ? std::optional(static_cast<std::int64_t>(given.number(name))) : std::nullopt;
  };
  options.steps_per_epoch = optional("steps_per_epoch");
  options.validation_batch_size = optional("validation_batch_size");
  options.initial_epoch = optional("initial_epoch").value_or(0);
  options.validation_freq = optional("validation_freq").value_or(1);
  options.validation_split = given.number("validation_split");
  const Floats x = data.tensor("validation_x");
  const auto y = data.tensor<std::int32_t>("validation_y");
  if (given.is_set("validation_sample_weight"))
    options.validation_data = ModelData(x, y, data.tensor("validation_sample_weight"));
  else if (given.is_set("validation_data"))
    options.validation_data = ModelData(x, y);
  if (given.is_set("sample_weight")) options.sample_weight = data.tensor("sample_weight");
  if (given.is_set("class_weight")) {
    const Floats weights = data.tensor("class_weight");
    for (std::size_t i = 0; i < weights.size(); ++i) options.class_weight[static_cast<std::int64_t>(i)] = weights[i];
  }
  return options;
}

void expect_golden(const GoldenCase& golden, const GoldenCase& data) {
  SCOPED_TRACE(golden.name());
  Sequential model = golden_model(golden, data);
  compile_golden(model, golden);
  const FitOptions options = golden_options(golden, data);
  const Floats x = data.tensor("x");
  const bool has_own_labels = golden.has("y") && golden.word("loss") != "sparse_categorical_crossentropy";
  const History history = has_own_labels ? model.fit(x, golden.tensor("y"), options)
                                         : model.fit(x, data.tensor<std::int32_t>("y"), options);
  const std::vector<std::string> names = golden.tensors_with("history.");
  EXPECT_EQ(history.values.size(), names.size());
  for (const std::string& name : names)
    expect_near(cast<float>(row(history[name])), golden.tensor("history." + name), 2e-6);
  for (std::size_t at = 0; at < weight_names.size(); ++at)
    expect_near(model.variables()[at].as<float>().read(), golden.tensor("after." + weight_names[at]), 3e-6);
  if (!golden.has("evaluated")) return;
  EvaluateOptions evaluation{.batch_size = 10, .verbose = Verbose::silent};
  if (golden.is_set("validation_sample_weight")) evaluation.sample_weight = data.tensor("validation_sample_weight");
  const Logs evaluated =
      model.evaluate(data.tensor("validation_x"), data.tensor<std::int32_t>("validation_y"), evaluation);
  for (std::size_t at = 0; at < golden.words("evaluated").size(); ++at)
    EXPECT_NEAR(evaluated[golden.words("evaluated")[at]], golden.tensor("evaluate")[at], 2e-6);
  expect_near(model.predict(data.tensor("validation_x"), {.batch_size = 10}), golden.tensor("predict"), 3e-6);
}

TEST(Fit, GivesTheNumbersOfKeras) {
  const std::vector<GoldenCase> cases = golden_cases("fit");
  ASSERT_EQ(cases.front().name(), "model");
  for (std::size_t i = 1; i < cases.size(); ++i) expect_golden(cases[i], cases.front());
}

TEST(Callbacks, GiveTheNumbersOfKeras) {
  const GoldenCase data = golden_cases("fit").front();
  for (const GoldenCase& golden : golden_cases("callbacks")) expect_golden(golden, data);
}

// Returns the model of TensorFlow's guide, with a kernel that gives its losses.
Sequential guide_model() {
  Sequential model(Dense(1, {.kernel_initializer = constant_initializer(-0.8624095F), .input_shape = TensorShape{1}}));
  model.compile("mse", "sgd");
  return model;
}
Dataset<std::tuple<Floats, Floats>> guide_data() {
  return data::from_tensors(std::tuple(row({1.F}), row({1.F}))).repeat(100).batch(10);
}

TEST(Fit, PrintsTheNumbersOfTheGuide) {
  Sequential model = guide_model();
  std::ostringstream shown;
  model.fit(guide_data(), {.epochs = 2, .output = &shown});
  EXPECT_NEAR(model.evaluate(guide_data(), {.output = &shown})["loss"], 0.6776412, 1e-6);
  const Floats ones({100, 1}, 1.F);
  model.fit(ones, ones, {.epochs = 2, .batch_size = 10, .output = &shown});
  EXPECT_EQ(shown.str(),
            "Epoch 1/2\n10/10 - loss: 2.4687\nEpoch 2/2\n10/10 - loss: 1.0912\n"
            "10/10 - loss: 0.6776\n"
            "Epoch 1/2\n10/10 - loss: 0.4823\nEpoch 2/2\n10/10 - loss: 0.2132\n");
}

TEST(Fit, DrawsAnotherOrderForEachEpochUnlessToldNotTo) {
  const auto rows = data::range(40).map([](std::int64_t i) { return static_cast<float>(i) / 40; });
  Floats x({40, 1});
  for (std::size_t i = 0; i < 40; ++i) x[i] = static_cast<float>(i) / 40;
  const auto losses = [&](bool is_shuffled, std::uint64_t seed) {
    Sequential model(Dense(1, {.kernel_initializer = constant_initializer(0.5F), .input_shape = TensorShape{1}}));
    model.compile("mse", "sgd");
    return model
        .fit(x, x, {.epochs = 2, .batch_size = 4, .shuffle = is_shuffled, .seed = seed, .verbose = Verbose::silent})
        .values["loss"];
  };
  EXPECT_EQ(losses(true, 1), losses(true, 1));
  EXPECT_NE(losses(true, 1), losses(true, 2));
  EXPECT_NE(losses(true, 1), losses(false, 1));
  EXPECT_EQ(losses(false, 1), losses(false, 2));
}

// ---- Callbacks ----

// Counts and notes its calls.
class Recorder final : public Callback {
 public:
  std::map<std::string, int> calls;
  std::vector<std::string> order;
  void note(const std::string& call) {
    ++calls[call];
    if (order.empty() || order.back() != call) order.push_back(call);
  }
  void on_train_begin(Logs&) override { note("train_begin"); }
  void on_train_end(Logs&) override { note("train_end"); }
  void on_epoch_begin(std::int64_t, Logs&) override { note("epoch_begin"); }
  void on_epoch_end(std::int64_t, Logs&) override { note("epoch_end"); }
  void on_train_batch_begin(std::int64_t, Logs&) override { note("batch_begin"); }
  void on_train_batch_end(std::int64_t, Logs&) override { note("batch_end"); }
  void on_test_begin(Logs&) override { note("test_begin"); }
  void on_test_end(Logs&) override { note("test_end"); }
  void on_test_batch_begin(std::int64_t, Logs&) override { note("test_batch_begin"); }
  void on_test_batch_end(std::int64_t, Logs&) override { note("test_batch_end"); }
  void on_predict_begin(Logs&) override { note("predict_begin"); }
  void on_predict_end(Logs&) override { note("predict_end"); }
  void on_predict_batch_begin(std::int64_t, Logs&) override { note("predict_batch_begin"); }
  void on_predict_batch_end(std::int64_t, Logs&) override { note("predict_batch_end"); }
};

// TensorFlow's TestDistributionStrategyWithCallbacks.
TEST(Callbacks, AreCalledAtEachEvent) {
  Sequential model = guide_model();
  const auto data = guide_data().repeat();
  Recorder fit;
  model.fit(data, {.epochs = 2,
                   .steps_per_epoch = 5,
                   .callbacks = {&fit},
                   .validation_data = data,
                   .validation_steps = 3,
                   .verbose = Verbose::silent});
  const std::map<std::string, int> expected{
      {"batch_begin", 10},   {"batch_end", 10}, {"epoch_begin", 2}, {"epoch_end", 2},   {"test_batch_begin", 6},
      {"test_batch_end", 6}, {"test_begin", 2}, {"test_end", 2},    {"train_begin", 1}, {"train_end", 1}};
  EXPECT_EQ(fit.calls, expected);
  EXPECT_EQ(fit.order.front(), "train_begin");
  EXPECT_EQ(fit.order.back(), "train_end");
  EXPECT_EQ(fit.order[1], "epoch_begin");
  EXPECT_EQ(*(fit.order.end() - 3), "test_end") << "validation comes before the end of the epoch";
  Recorder evaluation;
  model.evaluate(data, {.steps = 5, .callbacks = {&evaluation}, .verbose = Verbose::silent});
  EXPECT_EQ(evaluation.calls["test_batch_end"], 5);
  EXPECT_EQ(evaluation.calls["test_begin"], 1);
  Recorder prediction;
  model.predict(data, {.steps = 5, .callbacks = {&prediction}});
  EXPECT_EQ(prediction.calls["predict_batch_begin"], 5);
  EXPECT_EQ(prediction.calls["predict_end"], 1);
}

// Gives the epochs these values, whatever the training.
LambdaCallback scripted(std::string name, Values values) {
  return LambdaCallback(
      {.on_epoch_end = [name = std::move(name), values = std::move(values)](std::int64_t epoch, Logs& logs) {
        logs.set(name, values.at(static_cast<std::size_t>(epoch)));
      }});
}

TEST(EarlyStoppings, StopBehindTheEpochsOfTheirPatience) {
  struct Case {
    std::string what;
    EarlyStoppingOptions options;
    Values values;
    std::size_t epochs;
    std::int64_t best;
  };
  const std::vector<Case> cases{
      {"better each time", {}, {5, 4, 3, 2}, 4, 3},
      {"no patience", {}, {5, 4, 4, 2}, 3, 1},
      {"patience of 2", {.patience = 2}, {5, 4, 6, 6, 2}, 4, 1},
      {"a better one begins the patience anew", {.patience = 2}, {5, 6, 4, 6, 6, 2}, 5, 2},
      {"min_delta", {.min_delta = 0.5}, {5, 4.6, 4, 1}, 2, 0},
      {"accuracy shall rise", {.monitor = "val_accuracy"}, {0.1, 0.2, 0.2, 0.9}, 3, 1},
      {"mode max", {.mode = MonitorMode::max}, {1, 2, 3, 3}, 4, 2},
      {"baseline never reached", {.patience = 2, .baseline = 1.0}, {5, 4, 3, 3, 3, 3}, 4, 2},
      {"start_from_epoch", {.start_from_epoch = 2}, {1, 2, 3, 4, 0}, 4, 2},
  };
  for (const Case& each : cases) {
    SCOPED_TRACE(each.what);
    Sequential model = guide_model();
    EarlyStopping stopping(each.options);
    const History history =
        model.fit(guide_data(), {.epochs = static_cast<std::int64_t>(each.values.size()),
                                 .callbacks = {scripted(each.options.monitor, each.values), &stopping},
                                 .verbose = Verbose::silent});
    EXPECT_EQ(history.epochs.size(), each.epochs);
    EXPECT_EQ(stopping.best_epoch(), each.best);
  }
}

TEST(EarlyStoppings, RestoreTheBestWeights) {
  Sequential model = guide_model();
  Values kernels;
  LambdaCallback keep({.on_epoch_end = [&](std::int64_t, Logs&) {
    kernels.push_back(static_cast<double>(model.variables()[0].as<float>().read().item()));
  }});
  model.fit(guide_data(), {.epochs = 9,
                           .callbacks = {scripted("val_loss", {3, 1, 2, 2, 2, 2, 2, 2, 2}), keep,
                                         EarlyStopping({.patience = 3, .restore_best_weights = true})},
                           .verbose = Verbose::silent});
  ASSERT_EQ(kernels.size(), 5U);
  EXPECT_EQ(static_cast<double>(model.variables()[0].as<float>().read().item()), kernels[1]);
  EXPECT_NE(kernels[1], kernels[4]);
}

TEST(EarlyStoppings, WarnOfANumberThatIsMissing) {
  std::vector<std::string> lines;
  MirroredStrategy strategy(
      1, {.log = Log(LogLevel::warn, [&](LogLevel, std::string_view line) { lines.emplace_back(line); })});
  const Scope scope = strategy.scope();
  Sequential model = guide_model();
  EXPECT_EQ(
      model.fit(guide_data(), {.epochs = 2, .callbacks = {EarlyStopping()}, .verbose = Verbose::silent}).epochs.size(),
      2U);
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_PRED2(holds, lines[0],
               "EarlyStopping monitors val_loss, which is not available. Available are: - loss: 2.4687");
}

TEST(LearningRateSchedulers, SetTheRateOfEachEpoch) {
  Sequential model = guide_model();
  const History history =
      model.fit(guide_data(), {.epochs = 3,
                               .callbacks = {LearningRateScheduler(
                                   [](std::int64_t epoch, float rate) { return epoch == 0 ? rate : rate / 2; })},
                               .verbose = Verbose::silent});
  const std::vector<float> rates(history["learning_rate"].begin(), history["learning_rate"].end());
  EXPECT_EQ(rates, (std::vector<float>{0.01F, 0.005F, 0.0025F}));
  EXPECT_EQ(model.optimizer().learning_rate(), 0.0025F);
}

TEST(Callbacks, StopTheTrainingBehindABatch) {
  Sequential model = guide_model();
  std::int64_t steps = 0;
  const LambdaCallback stop({.on_train_batch_end = [&](std::int64_t step, Logs&) {
    ++steps;
    if (step == 3) model.stop_training();
  }});
  const History history = model.fit(guide_data(), {.epochs = 3, .callbacks = {stop}, .verbose = Verbose::silent});
  EXPECT_EQ(steps, 4);
  EXPECT_EQ(history.epochs.size(), 1U);
  steps = 0;
  model.fit(guide_data(), {.epochs = 1, .verbose = Verbose::silent});
  EXPECT_EQ(model.optimizer().iterations(), 14) << "the next training begins without the wish";
}

// The data end where an epoch does, so the next epoch begins anew, also behind a validation.
TEST(Fit, BeginsDataAnewBehindAValidation) {
  Sequential model = guide_model();
  const Floats x({100, 1}, 1.F);
  const History history = model.fit(
      x, x, {.epochs = 3, .batch_size = 10, .steps_per_epoch = 8, .validation_split = 0.2, .verbose = Verbose::silent});
  EXPECT_EQ(history["val_loss"].size(), 3U);
  EXPECT_EQ(model.optimizer().iterations(), 24);
}

TEST(Fit, TrainsOnAllRowsIfValidationHasItsOwn) {
  Sequential model = guide_model();
  const Floats x({100, 1}, 1.F);
  model.fit(
      x, x,
      {.batch_size = 10, .validation_data = ModelData(x, x), .validation_split = 0.5, .verbose = Verbose::silent});
  EXPECT_EQ(model.optimizer().iterations(), 10);
}

TEST(Callbacks, KeepTheirModelIfTheyEvaluateIt) {
  struct Evaluation final : Callback {
    std::vector<double> losses;
    void on_epoch_end(std::int64_t /*epoch*/, Logs& /*logs*/) override {
      losses.push_back(model().evaluate(guide_data(), {.callbacks = {this}, .verbose = Verbose::silent})["loss"]);
      losses.push_back(static_cast<double>(model().optimizer().learning_rate()));
    }
  } evaluation;
  guide_model().fit(guide_data(), {.epochs = 2, .callbacks = {&evaluation}, .verbose = Verbose::silent});
  EXPECT_EQ(evaluation.losses.size(), 4U);
}

TEST(Callbacks, TerminateOnALossThatIsNoNumber) {
  MirroredStrategy strategy(1, quiet());
  const Scope scope = strategy.scope();
  Sequential model = guide_model();
  Floats x({40, 1}, 1.F);
  x[13] = std::numeric_limits<float>::quiet_NaN();
  model.fit(x, x, {.batch_size = 10, .callbacks = {TerminateOnNaN()}, .shuffle = false, .verbose = Verbose::silent});
  EXPECT_EQ(model.optimizer().iterations(), 2);
}

// ---- Displays ----

TEST(Displays, DrawTheBarOfKeras) {
  EXPECT_EQ(bar_text(0, 10), "[..............................]");
  EXPECT_EQ(bar_text(1, 10), "[==>...........................]");
  EXPECT_EQ(bar_text(10, 10), "[==============================]");
  EXPECT_EQ(bar_text(1, 1000), "[..............................]");
  std::ostringstream shown;
  const auto bar = make_bar(shown);
  bar->begin(0, 2, 10);
  EXPECT_FALSE(bar->wants_step(1)) << "not so soon";
  bar->step(3, {{"loss", 2.5}});
  bar->step(4, {{"loss", 2.25}});
  bar->end(10, {{"loss", 2.46871}, {"accuracy", 0.5}, {"small", 0.0001}});
  EXPECT_PRED2(
      [](const std::string& text, const char* form) { return std::regex_match(text, std::regex(form)); }, shown.str(),
      R"(Epoch 1/2\n\r 3/10 \[========>\.{21}\] - ETA: 0s - loss: 2\.5000\r 4/10 \[===========>\.{18}\] - ETA: 0s - )"
      R"(loss: 2\.2500\r10/10 \[={30}\] - 0s \d+us/step - loss: 2\.4687 - accuracy: 0\.5000 - small: 1\.0000e-04\n)");
}

TEST(Displays, CountStepsWhoseNumberNobodyKnows) {
  std::ostringstream shown;
  const auto bar = make_bar(shown);
  bar->begin(0, 1, std::nullopt);
  bar->step(3, {});
  bar->end(7, {{"loss", 1}});
  EXPECT_PRED2(holds, shown.str(), "\r      3/Unknown - 0s ");
  EXPECT_PRED2(holds, shown.str(), "7/7 [==============================]");
  std::ostringstream lines;
  make_lines(lines)->begin(4, 5, std::nullopt);
  EXPECT_EQ(lines.str(), "Epoch 5/5\n");
}

TEST(Displays, AreThoseOfTheProgramIfItHasOne) {
  class Own final : public Progress {
   public:
    std::vector<std::string> calls;
    void begin(std::int64_t epoch, std::int64_t epochs, std::optional<std::int64_t> steps) override {
      calls.push_back(text("begin ", epoch, ' ', epochs, ' ', steps.value_or(-1)));
    }
    bool wants_step(std::int64_t done) override { return done == 4; }
    void step(std::int64_t done, const Logs& logs) override { calls.push_back(text("step ", done, ' ', logs.size())); }
    void end(std::int64_t done, const Logs& logs) override { calls.push_back(text("end ", done, to_string(logs))); }
  };
  const auto own = std::make_shared<Own>();
  Sequential model = guide_model();
  model.fit(guide_data(), {.progress = own});
  EXPECT_EQ(own->calls, (std::vector<std::string>{"begin 0 1 10", "step 4 1", "end 10 - loss: 2.4687"}));
}

// ---- Event files ----

// Reads the fields of a protobuf message by their numbers, as far as events have them.
std::map<unsigned, std::string> fields_of(std::string_view bytes) {
  std::map<unsigned, std::string> fields;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t number = 0;
    for (unsigned shift = 0;; shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes.at(at++));
      number |= std::uint64_t{byte & 0x7fU} << shift;
      if (byte < 0x80) return number;
    }
  };
  while (at < bytes.size()) {
    const std::uint64_t key = varint();
    if ((key & 7U) == 0) {
      fields[static_cast<unsigned>(key >> 3U)] = text(varint());
      continue;
    }
    const std::size_t length = (key & 7U) == 1 ? 8 : (key & 7U) == 5 ? 4 : static_cast<std::size_t>(varint());
    fields[static_cast<unsigned>(key >> 3U)] = bytes.substr(at, length);
    at += length;
  }
  return fields;
}

// Returns "tag step value" for each number in the event files of a folder.
std::vector<std::string> points_in(const std::filesystem::path& folder) {
  std::vector<std::string> points;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    EXPECT_TRUE(entry.path().filename().string().starts_with("events.out.tfevents."));
    std::size_t number = 0;
    for (const std::string& record : data::from_tf_records(entry.path().string())) {
      std::map<unsigned, std::string> event = fields_of(record);
      EXPECT_EQ(event[1].size(), sizeof(double));
      if (number++ == 0) {
        EXPECT_EQ(event[3], "brain.Event:2");
        continue;
      }
      std::map<unsigned, std::string> value = fields_of(fields_of(event[5])[1]);
      float point = 0;
      std::memcpy(&point, value[2].data(), sizeof point);
      points.push_back(text(value[1], ' ', event[2], ' ', point));
    }
  }
  return points;
}

TEST(EventFiles, HaveTheNumbersOfATraining) {
  const Folder folder;
  Sequential model = guide_model();
  model.fit(guide_data(), {.epochs = 2,
                           .callbacks = {LambdaCallback({.on_epoch_end =
                                                             [](std::int64_t, Logs& logs) {
                                                               logs.set("accuracy", 0.5);
                                                               logs.set("val_loss", 0.25);
                                                             }}),
                                         TensorBoard({.log_dir = folder.path().string(), .update_freq = 8})},
                           .verbose = Verbose::silent});
  const std::vector<std::string> train = points_in(folder.path() / "train");
  ASSERT_EQ(train.size(), 7U);
  EXPECT_EQ(train[0].substr(0, 15), "batch_loss 0 3.");
  EXPECT_EQ(train[1].substr(0, 13), "batch_loss 8 ");
  EXPECT_EQ(train[2].substr(0, 17), "epoch_loss 0 2.46");
  EXPECT_EQ(train[3], "epoch_accuracy 0 0.5");
  EXPECT_EQ(train[4].substr(0, 14), "batch_loss 16 ");
  EXPECT_EQ(train[6], "epoch_accuracy 1 0.5");
  EXPECT_EQ(points_in(folder.path() / "validation"),
            (std::vector<std::string>{"epoch_loss 0 0.25", "epoch_loss 1 0.25"}));
}

TEST(EventFiles, AreRefusedWhereNoFileCanBe) {
  const Folder folder;
  folder.write("file", "no folder");
  EXPECT_PRED2(holds, refusal([&] { EventFile((folder.path() / "file" / "logs").string()); }, Code::file),
               "cannot be made");
}

// ---- Refusals ----

struct Refusal {
  std::string text;
  std::function<void(Sequential& model)> call;
};

TEST(Fit, RefusesWhatMakesNoSense) {
  const Floats x({10, 1}, 1.F);
  const std::vector<Refusal> cases{
      {"fit() of an infinitely repeating dataset without `steps_per_epoch`",
       [](Sequential& model) { model.fit(guide_data().repeat()); }},
      {"please specify a `validation_steps` value",
       [](Sequential& model) { model.fit(guide_data(), {.validation_data = guide_data().repeat()}); }},
      {"please specify a `steps` value", [](Sequential& model) { model.evaluate(guide_data().repeat()); }},
      {"predict() of an infinitely repeating dataset", [](Sequential& model) { model.predict(guide_data().repeat()); }},
      {"`validation_split` is not supported when a data set is the input",
       [](Sequential& model) { model.fit(guide_data(), {.validation_split = 0.2}); }},
      {"`batch_size` is not supported", [](Sequential& model) { model.fit(guide_data(), {.batch_size = 2}); }},
      {"`sample_weight` is not supported", [&](Sequential& model) { model.fit(guide_data(), {.sample_weight = x}); }},
      {"`batch_size` is not supported", [](Sequential& model) { model.evaluate(guide_data(), {.batch_size = 2}); }},
      {"Data cardinality is ambiguous: the arrays have 10, 9 rows",
       [&](Sequential& model) {
         model.fit(x, Floats({9, 1}));
       }},
      {"which is not sufficient to split it into a validation and training set",
       [&](Sequential& model) { model.fit(x, x, {.validation_split = 1}); }},
      {"the data of fit() have no examples", [](Sequential& model) { model.fit(guide_data().take(0)); }},
      {"the data of predict() have no examples", [](Sequential& model) { model.predict(guide_data().take(0)); }},
      {"a batch size of 0", [&](Sequential& model) { model.fit(x, x, {.batch_size = 0}); }},
      {"a loss of shape () for 10 examples, whose predictions have the shape (10, 1)",
       [&](Sequential& model) {
         const auto mean = [](const TapeTensor& labels, const TapeTensor& predictions) {
           return reduce_mean(square(predictions - labels));
         };
         model.compile(Loss(mean), "sgd");
         model.fit(x, x);
       }},
      {"a loss of shape (10, 10) for 10 examples, whose predictions have the shape (10, 1)",
       [&](Sequential& model) {
         const auto difference = [](const TapeTensor& labels, const TapeTensor& predictions) {
           return square(predictions - labels);
         };
         model.compile(Loss(difference), "sgd");
         model.fit(x, Floats(TensorShape{10}));
       }},
      {"`epochs` is -1", [&](Sequential& model) { model.fit(x, x, {.epochs = -1}); }},
      {"`initial_epoch` is -1", [&](Sequential& model) { model.fit(x, x, {.initial_epoch = -1}); }},
      {"`steps_per_epoch` is 0", [&](Sequential& model) { model.fit(x, x, {.steps_per_epoch = 0}); }},
      {"`validation_steps` is 0", [&](Sequential& model) { model.fit(x, x, {.validation_steps = 0}); }},
      {"`validation_freq` is 0", [&](Sequential& model) { model.fit(x, x, {.validation_freq = 0}); }},
      {"`steps` is 0", [&](Sequential& model) { model.evaluate(x, x, {.steps = 0}); }},
      {"`steps` is -2", [&](Sequential& model) { model.predict(x, {.steps = -2}); }},
      {"unknown metric: 'mean'",
       [&](Sequential& model) {
         model.compile("mse", "sgd", {"mean"});
         model.fit(x, x);
       }},
      {"predict() of batches with results of the shapes (2, 4, 2) and (1, 5, 2)",
       [](Sequential& /*model*/) {
         Sequential lookup(Embedding(4, 2));
         const auto lines = data::range(3).map([](std::int64_t i) { return Tensor<std::int64_t>({3 + i}, 1); });
         lookup.predict(lines.padded_batch(2));
       }},
      {"the data of fit() have no labels", [&](Sequential& model) { model.fit(ModelData(x)); }},
  };
  for (const Refusal& each : cases) {
    Sequential model = guide_model();
    EXPECT_PRED2(holds, refusal([&] { each.call(model); }, {Code::usage, Code::replica_failed}), each.text);
  }
}

TEST(Compile, RefusesVariablesOfAnotherStrategy) {
  MirroredStrategy here(2, quiet());
  MirroredStrategy other(1, quiet());
  const auto model_of = [](Strategy& strategy) {
    const Scope scope = strategy.scope();
    return Sequential(Dense(1, {.input_shape = TensorShape{1}}));
  };
  Sequential model = model_of(here);
  model.compile("mse", "sgd");  // Outside of the scope, as the guide does.
  const auto compile_in = [&](Strategy& strategy, Sequential& which) {
    const Scope scope = strategy.scope();
    which.compile("mse", "sgd");
  };
  EXPECT_PRED2(holds, refusal([&] { compile_in(other, model); }, Code::usage),
               "was not created in the distribution strategy");
  Sequential plain(Dense(1, {.input_shape = TensorShape{1}}));
  EXPECT_PRED2(holds, refusal([&] { compile_in(here, plain); }, Code::usage),
               "was not created in the distribution strategy");
  Sequential unbuilt{Dense(1)};
  EXPECT_PRED2(holds, refusal([&] { compile_in(here, unbuilt); }, Code::usage), "is compiled in the scope of");

  SGD trained({.learning_rate = 0.1F});
  plain.compile("mse", trained);
  plain.fit(guide_data(), {.verbose = Verbose::silent});
  EXPECT_PRED2(holds, refusal([&] { model.compile("mse", trained); }, Code::usage),
               "was not created in the distribution strategy")
      << "the optimizer's";
  EXPECT_PRED2(holds, refusal([&] { Sequential(Dense(1)).fit(guide_data()); }, Code::usage),
               "You must compile your model");
  EXPECT_PRED2(holds, refusal([&] { plain.compile({.loss = "mse"}); }, Code::usage), "without an optimizer");
  const auto divided = other.distribute(guide_data());
  EXPECT_PRED2(holds, refusal([&] { model.fit(divided); }, Code::usage), "the data were divided by");
}

// ---- Roles ----

TEST(TrainAndEvaluate, DoesWhatTheRoleAsksFor) {
  const auto model_fn = [] { return std::make_unique<Sequential>(guide_model()); };
  const auto input_fn = [](InputMode mode) {
    return ModelData(mode == InputMode::train ? guide_data().repeat() : guide_data());
  };
  const auto as = [](const std::string& type) {
    return std::make_shared<SimpleResolver>(ClusterSpec({{type, {"localhost:1"}}}), Task{type, 0});
  };
  RunConfig config{.train_distribute = [] { return AnyStrategy(std::make_unique<MirroredStrategy>(2, quiet())); },
                   .resolver = nullptr,
                   .max_steps = 20,
                   .verbose = Verbose::silent};
  const RunResult alone = train_and_evaluate(model_fn, input_fn, config);
  EXPECT_EQ(alone.role, "local");
  EXPECT_EQ(alone.history["loss"].size(), 1U);
  ASSERT_TRUE(alone.evaluation);
  EXPECT_NEAR((*alone.evaluation)["loss"], 0.6776412, 1e-6);

  config.resolver = as("worker");
  const RunResult worker = train_and_evaluate(model_fn, input_fn, config);
  EXPECT_EQ(worker.role, "worker");
  EXPECT_FALSE(worker.evaluation);
  const auto never = []() -> AnyStrategy { throw std::logic_error("the evaluator takes no part"); };
  config = {.train_distribute = never, .resolver = as("evaluator")};
  EXPECT_PRED2(holds, refusal([&] { train_and_evaluate(model_fn, input_fn, config); }, Code::usage),
               "reads checkpoints");
  config.resolver = as("ps");
  EXPECT_PRED2(holds, refusal([&] { train_and_evaluate(model_fn, input_fn, config); }, Code::usage),
               "parameter server");
}

}  // namespace
}  // namespace lockstep::test
