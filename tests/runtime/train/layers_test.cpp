// SPDX-License-Identifier: Apache-2.0
// Layers without a strategy: values and gradients of TensorFlow's, names, shapes, the table, initialisers, refusals.
#include "runtime/train/layers.hpp"

#include <gtest/gtest.h>

#include <set>

#include "runtime/default_strategy.hpp"
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

Size2D size_of(const GoldenCase& golden, const std::string& key) {
  const std::vector<std::int64_t> lengths = golden.integers(key);
  return {lengths.at(0), lengths.at(1)};
}

Padding padding_of(const GoldenCase& golden) {
  return golden.word("padding") == "same" ? Padding::same : Padding::valid;
}

std::unique_ptr<Layer> layer_of(const GoldenCase& golden) {
  const std::string kind = golden.word("layer");
  const auto whole = [&](const std::string& key) { return static_cast<std::int64_t>(golden.number(key)); };
  if (kind == "Dense")
    return std::make_unique<Dense>(whole("units"), DenseOptions{.activation = Activation(golden.word("activation")),
                                                                .use_bias = golden.is_set("use_bias", true)});
  if (kind == "Conv2D")
    return std::make_unique<Conv2D>(whole("filters"), size_of(golden, "kernel_size"),
                                    Conv2DOptions{.activation = Activation(golden.word("activation")),
                                                  .strides = size_of(golden, "strides"),
                                                  .padding = padding_of(golden)});
  if (kind == "MaxPooling2D")
    return std::make_unique<MaxPool2D>(
        size_of(golden, "pool_size"),
        MaxPool2DOptions{.strides = size_of(golden, "strides"), .padding = padding_of(golden)});
  if (kind == "Flatten") return std::make_unique<Flatten>();
  if (kind == "Reshape") return std::make_unique<Reshape>(golden.integers("target_shape"));
  if (kind == "Embedding") return std::make_unique<Embedding>(whole("input_dim"), whole("output_dim"));
  if (kind == "BatchNormalization")
    return std::make_unique<BatchNormalization>(BatchNormalizationOptions{.momentum = golden.number("momentum"),
                                                                          .epsilon = golden.number("epsilon"),
                                                                          .center = golden.is_set("center", true),
                                                                          .scale = golden.is_set("scale", true)});
  if (kind == "Dropout") return std::make_unique<Dropout>(golden.number("rate"));
  throw std::runtime_error("no layer " + kind);
}

// Returns the variable whose name ends with a word.
AnyVariable weight_named(const Layer& layer, const std::string& word) {
  for (const AnyVariable& each : layer.variables()) {
    if (each.name() == layer.name() + "/" + word) return each;
  }
  throw std::runtime_error("no weight " + word);
}

TEST(Layers, GiveTensorFlowsValuesAndGradients) {
  for (const GoldenCase& golden : golden_cases("layers")) {
    SCOPED_TRACE(golden.name());
    const std::unique_ptr<Layer> layer = layer_of(golden);
    const bool has_integers = golden.word("layer") == "Embedding";
    const TapeTensor x = has_integers ? TapeTensor(golden.tensor<std::int32_t>("x")) : TapeTensor(golden.tensor("x"));
    layer->build(x.shape().without(0));
    for (const AnyVariable& each : layer->variables())
      each.as<float>().assign(golden.tensor(each.name().substr(layer->name().size() + 1)));
    Tape tape({.persistent = true});
    if (!has_integers) tape.watch(x);
    const TapeTensor out = (*layer)(x, golden.is_set("training"));
    expect_near(out.to<float>(), golden.tensor("out"), 2e-6);
    EXPECT_EQ(out.shape().without(0), layer->output_shape(x.shape().without(0)));
    const TapeTensor target = reduce_sum(out * TapeTensor(golden.tensor("upstream")));
    for (const std::string& name : golden.tensors_with("grad.")) {
      SCOPED_TRACE(name);
      const Gradient found = name == "x" ? tape.gradient(target, x) : tape.gradient(target, weight_named(*layer, name));
      EXPECT_EQ(found.is_sparse(), has_integers);
      expect_near(found.to<float>(), golden.tensor("grad." + name), 5e-6);
    }
    for (const std::string& name : golden.tensors_with("after."))
      expect_near(weight_named(*layer, name).as<float>().read(), golden.tensor("after." + name), 2e-6);
  }
}

std::vector<std::string> names_of(const std::vector<AnyVariable>& variables) {
  std::vector<std::string> all;
  for (const AnyVariable& each : variables) all.push_back(each.name());
  return all;
}

Sequential digits_model() {
  return Sequential(InputLayer({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = relu}),
                    BatchNormalization({.trainable = false}), MaxPool2D(), Flatten(), Dense(128, {.activation = relu}),
                    Dropout(0.5), Dense(10));
}

TEST(Sequentials, NameTheirVariables) {
  const Sequential model = digits_model();
  const std::vector<std::string> trainable{"conv2d/kernel", "conv2d/bias",    "dense/kernel",
                                           "dense/bias",    "dense_1/kernel", "dense_1/bias"};
  EXPECT_EQ(names_of(model.trainable_variables()), trainable);
  EXPECT_EQ(names_of(digits_model().trainable_variables()), trainable);
  EXPECT_EQ(model.variables().size(), trainable.size() + 4);
  EXPECT_EQ(names_of(model.variables())[4], "batch_normalization/moving_mean");
}

TEST(Sequentials, DrawKerasTable) {
  Sequential model(SequentialOptions{.name = "sequential"}, InputLayer({28, 28}), Reshape({28, 28, 1}),
                   Conv2D(32, 3, {.activation = relu}), BatchNormalization({.trainable = false}), MaxPool2D(),
                   Flatten(), Dense(128, {.activation = relu}), Dropout(0.5), Dense(10));
  EXPECT_EQ(model.summary(),
            R"(Model: "sequential"
┏━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━━┓
┃ Layer (type)                    ┃ Output Shape           ┃       Param # ┃
┡━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━━┩
│ reshape (Reshape)               │ (None, 28, 28, 1)      │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ conv2d (Conv2D)                 │ (None, 26, 26, 32)     │           320 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ batch_normalization             │ (None, 26, 26, 32)     │           128 │
│ (BatchNormalization)            │                        │               │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ max_pooling2d (MaxPooling2D)    │ (None, 13, 13, 32)     │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ flatten (Flatten)               │ (None, 5408)           │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense (Dense)                   │ (None, 128)            │       692,352 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dropout (Dropout)               │ (None, 128)            │             0 │
├─────────────────────────────────┼────────────────────────┼───────────────┤
│ dense_1 (Dense)                 │ (None, 10)             │         1,290 │
└─────────────────────────────────┴────────────────────────┴───────────────┘
 Total params: 694,090 (2.65 MB)
 Trainable params: 693,962 (2.65 MB)
 Non-trainable params: 128 (512.00 B)
)");
}

TEST(Sequentials, AreBuiltByTheirFirstCall) {
  Sequential model(Dense(3), Dense(1));
  EXPECT_FALSE(model.is_built());
  EXPECT_TRUE(model.variables().empty());
  EXPECT_NE(model.summary().find("│ dense (Dense)                   │ ?                      │   0 (unbuilt) │"),
            std::string::npos);
  EXPECT_EQ(model(Tensor<float>({4, 2}, 1.F)).shape(), TensorShape({4, 1}));
  EXPECT_EQ(names_of(model.variables()),
            (std::vector<std::string>{"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias"}));
}

TEST(Sequentials, TakeLayersLaterAndAreLayers) {
  Sequential inner(Dense(2), Dense(2));
  Sequential model(Dense(4, {.input_shape = TensorShape{3}}));
  model.add(std::move(inner));
  const Dense& last = model.add(Dense(1, {.name = "last"}));
  EXPECT_EQ(model.layers().size(), 3U);
  EXPECT_EQ(last.variables().front().shape(), TensorShape({2, 1}));
  EXPECT_EQ(names_of(model.variables()).at(4), "sequential/dense_1/kernel");
  EXPECT_EQ(model(Tensor<float>({5, 3}, 1.F)).shape(), TensorShape({5, 1}));
}

TEST(Sequentials, FreezeLayers) {
  Sequential model(Dense(2, {.input_shape = TensorShape{1}}), BatchNormalization(), Dense(1));
  EXPECT_EQ(model.trainable_variables().size(), 6U);
  model.layers()[1]->set_trainable(false);
  EXPECT_EQ(model.trainable_variables().size(), 4U);
  model.set_trainable(false);
  EXPECT_TRUE(model.trainable_variables().empty());
  EXPECT_EQ(model.variables().size(), 8U);
  model.set_trainable(true);
  EXPECT_EQ(model.trainable_variables().size(), 6U);
}

TEST(BatchNormalizations, ThatAreFrozenKeepTheirAverages) {
  BatchNormalization layer;
  layer.set_trainable(false);
  const Tensor<float> x({2, 1}, {3, 5});
  expect_near(layer(x, true).to<float>(), layer(x, false).to<float>());
  EXPECT_EQ(layer.variables()[2].as<float>().read(), Tensor<float>(TensorShape{1}));
}

TEST(BatchNormalizations, KeepTheirAveragesIfThereIsNoExample) {
  BatchNormalization layer;
  EXPECT_EQ(layer(Tensor<float>({0, 2}), true).shape(), TensorShape({0, 2}));
  EXPECT_EQ(layer.variables()[3].as<float>().read(), row({1.F, 1.F}));
}

// Has a layer that its fields do not name.
struct ForgottenLayer {
  Dense named{3};
  Dense forgotten{3};
  TapeTensor operator()(const TapeTensor& x, bool training) { return forgotten(named(x, training), training); }
};

// Uses one layer twice.
struct TiedLayers {
  std::shared_ptr<Dense> first = std::make_shared<Dense>(3);
  std::shared_ptr<Dense> second = first;
  TapeTensor operator()(const TapeTensor& x, bool training) { return (*second)((*first)(x, training), training); }
};

struct Classifier {
  Dense hidden{4, relu};
  std::vector<Dense> others;
  Variable<float> scale{2.F, {.name = "scale"}};
  Sequential last{Dense(3), Dense(2)};
  int calls = 0;
  TapeTensor operator()(const TapeTensor& x, bool training) {
    TapeTensor result = hidden(x, training);
    for (Dense& each : others) result = each(result, training);
    return last(result, training) * scale;
  }
};

}  // namespace
}  // namespace lockstep::train

template <>
struct lockstep::Fields<lockstep::train::Classifier> {
  static auto of(auto& model) { return std::tie(model.hidden, model.others, model.scale, model.last, model.calls); }
};

template <>
struct lockstep::Fields<lockstep::train::ForgottenLayer> {
  static auto of(auto& model) { return std::tie(model.named); }
};

template <>
struct lockstep::Fields<lockstep::train::TiedLayers> {
  static auto of(auto& model) { return std::tie(model.first, model.second); }
};

namespace lockstep::train {
namespace {

TEST(ModelStructs, HaveALayerThatIsUsedTwiceOnce) {
  TiedLayers model;
  StructLayer whole(model);
  whole(Tensor<float>({2, 3}, 1.F));
  EXPECT_EQ(layers(model).size(), 1U);
  EXPECT_EQ(names_of(whole.trainable_variables()), (std::vector<std::string>{"dense/kernel", "dense/bias"}));
}

TEST(ModelStructs, RefuseALayerThatTheirFieldsDoNotName) {
  ForgottenLayer model;
  StructLayer whole(model);
  EXPECT_NE(refusal(
                [&] {
                  whole(Tensor<float>({2, 3}, 1.F));
                },
                Code::usage)
                .find("whose fields do not name it"),
            std::string::npos);
}

TEST(ModelStructs, ListTheirLayersAndVariables) {
  Classifier model;
  model.others.emplace_back(5);
  StructLayer whole(model);
  EXPECT_EQ(whole(Tensor<float>({7, 3}, 1.F)).shape(), TensorShape({7, 2}));
  EXPECT_EQ(names_of(variables(model)),
            (std::vector<std::string>{"dense/kernel", "dense/bias", "dense_1/kernel", "dense_1/bias", "scale",
                                      "sequential/dense/kernel", "sequential/dense/bias", "sequential/dense_1/kernel",
                                      "sequential/dense_1/bias"}));
  model.hidden.set_trainable(false);
  EXPECT_EQ(trainable_variables(model).size(), 7U);
  EXPECT_EQ(whole.trainable_variables().size(), 7U);
  EXPECT_EQ(layers(model).size(), 3U);
}

// Multiplies by a number that is learnt.
class Gain : public Layer {
 public:
  Gain() : Layer("Gain") {}
  TensorShape output_shape(const TensorShape& example) const override { return example; }

 protected:
  void make_variables(const TensorShape& /*example*/) override { add_weight("gain", {}, constant_initializer(3)); }
  TapeTensor call(const TapeTensor& x, bool /*training*/) override { return x * weight(0); }
};

TEST(Layers, MayBeAProgramsOwn) {
  Sequential model(InputLayer({2}), Gain(), Gain());
  const TapeTensor x = Tensor<float>({1, 2}, {1, -2});
  Tape tape;
  const TapeTensor y = model(x);
  EXPECT_EQ(y.to<float>(), Tensor<float>({1, 2}, {9, -18}));
  EXPECT_EQ(names_of(model.variables()), (std::vector<std::string>{"gain/gain", "gain_1/gain"}));
  EXPECT_EQ(tape.gradient(reduce_sum(y), model.variables()[0]).to<float>().item(), -3);
}

TEST(Initializers, RepeatByTheirSeed) {
  const TensorShape shape{40, 50};
  EXPECT_EQ(glorot_uniform({.seed = 7})(shape), glorot_uniform({.seed = 7})(shape));
  EXPECT_NE(glorot_uniform({.seed = 7})(shape), glorot_uniform({.seed = 8})(shape));
  set_random_seed(3);
  const Tensor<float> first = he_normal()(shape);
  const Tensor<float> second = he_normal()(shape);
  EXPECT_NE(first, second);
  set_random_seed(3);
  EXPECT_EQ(he_normal()(shape), first);
  EXPECT_EQ(he_normal()(shape), second);
}

TEST(Initializers, DrawKerasDistributions) {
  struct Expected {
    Initializer initializer;
    double mean, deviation, lowest, highest;
  };
  const double limit = std::sqrt(6.0 / (200 + 300));
  const Expected table[] = {
      {zeros(), 0, 0, 0, 0},
      {"ones", 1, 0, 1, 1},
      {constant_initializer(2.5F), 2.5, 0, 2.5, 2.5},
      {random_normal({.mean = 1, .deviation = 2, .seed = 1}), 1, 2, -12, 14},
      {random_uniform({.low = 1, .high = 3, .seed = 1}), 2, 1 / std::sqrt(3.0), 1, 3},
      {glorot_uniform({.seed = 1}), 0, limit / std::sqrt(3.0), -limit, limit},
      {he_normal({.seed = 1}), 0, 0.1, -2 * 0.1137, 2 * 0.1137},
  };
  for (const Expected& each : table) {
    const Tensor<float> drawn = each.initializer({200, 300});
    double sum = 0;
    double squares = 0;
    for (const float x : drawn) {
      ASSERT_GE(x, each.lowest - 1e-6);
      ASSERT_LE(x, each.highest + 1e-6);
      sum += x;
      squares += (x - each.mean) * (x - each.mean);
    }
    const auto count = static_cast<double>(drawn.size());
    EXPECT_NEAR(sum / count, each.mean, 0.02 * each.deviation + 1e-6);
    EXPECT_NEAR(std::sqrt(squares / count), each.deviation, 0.02 * each.deviation + 1e-6);
  }
}

TEST(Initializers, GiveDenseLayersKerasFirstValues) {
  Dense layer(30, {.input_shape = TensorShape{20}});
  layer.build({20});
  const Tensor<float> kernel = layer.variables()[0].as<float>().read();
  const auto limit = static_cast<float>(std::sqrt(6.0 / 50));
  for (const float each : kernel) EXPECT_LE(std::abs(each), limit);
  EXPECT_GT(std::set<float>(kernel.begin(), kernel.end()).size(), 590U);
  EXPECT_EQ(layer.variables()[1].as<float>().read(), Tensor<float>(TensorShape{30}));
}

TEST(Dropouts, RepeatByTheirSeed) {
  const Tensor<float> ones_of_batch({20, 50}, 1.F);
  Dropout one(0.25, {.seed = 5});
  Dropout same(0.25, {.seed = 5});
  const Tensor<float> first = one(ones_of_batch, true).to<float>();
  EXPECT_EQ(same(ones_of_batch, true).to<float>(), first);
  EXPECT_NE(one(ones_of_batch, true).to<float>(), first);
  EXPECT_EQ(one(ones_of_batch, false).to<float>(), ones_of_batch);
  const auto dropped = std::ranges::count(first, 0.F);
  EXPECT_NEAR(static_cast<double>(dropped), 250, 60);
  EXPECT_EQ(Dropout(1)(ones_of_batch, true).to<float>(), Tensor<float>(ones_of_batch.shape()));
}

struct Refusal {
  std::string_view name;
  std::string_view words;
  std::function<void()> use;
};

TEST(Layers, RefuseWrongUses) {
  const Tensor<float> x({2, 3}, 1.F);
  const Refusal table[] = {
      {"activation", "an activation of the name 'rellu'", [] { Dense(3, "rellu"); }},
      {"initializer", "an initializer of the name 'glorot'", [] { Dense(3, {.kernel_initializer = "glorot"}); }},
      {"units", "Received an invalid value for `units`, expected a positive integer. Received: units=0",
       [] { Dense(0); }},
      {"first_value", "a first value of the shape (2,) for a variable of the shape (3, 1)",
       [&] {
         Dense(1, {.kernel_initializer = row({1.F, 2.F})})(x);
       }},
      {"last_axis", "expected axis -1 of input shape to have value 3, but received input with shape (None, 4)",
       [&] {
         Dense layer(1);
         layer(x);
         layer(Tensor<float>({2, 4}));
       }},
      {"rank", "expected ndim=4, found ndim=2. Full shape received: (None, 3)", [&] { Conv2D(1, 2)(x); }},
      {"window", "Computed output size would be negative",
       [] {
         Sequential(InputLayer({2, 2, 1}), Conv2D(1, 3), Flatten());
       }},
      {"reshape", "The total size of the tensor must be unchanged. Received: input_shape=(3,)",
       [&] {
         Reshape({2, 2})(x);
       }},
      {"pool", "MaxPool2D with a window or strides that are not positive", [] { MaxPool2D(0); }},
      {"pool_strides", "MaxPool2D with a window or strides that are not positive",
       [] { MaxPool2D(2, {.strides = 0}); }},
      {"rate", "Expected a float value between 0 and 1. Received: rate=1.5", [] { Dropout(1.5); }},
      {"names", "should have unique names. Name \"a\" is already the name of a layer in this model",
       [] { Sequential(Dense(1, {.name = "a"}), Dense(1, {.name = "a"})); }},
      {"second_input", "You cannot add a different Input layer to it",
       [] { Sequential(InputLayer({2}), Dense(1)).add(InputLayer({3})); }},
      {"built_twice", "is built already",
       [] {
         Dense layer(1);
         layer.build({1});
         layer.build({1});
       }},
      {"scalar", "was called with a scalar", [] { Dense(1)(1.F); }},
  };
  for (const Refusal& each : table) {
    SCOPED_TRACE(each.name);
    const std::string said = refusal(each.use, Code::usage);
    EXPECT_NE(said.find(each.words), std::string::npos) << said;
  }
}

TEST(Layers, RefuseAnotherStrategy) {
  Dense outside(1);
  outside.build({1});
  MirroredStrategy strategy(2, quick());
  MirroredStrategy other(2, quick());
  const std::string_view words = "was not created in the distribution strategy scope of (MirroredStrategy";
  const auto expect_refusal = [&](const std::function<void()>& use) {
    const std::string said = refusal(use, {Code::usage, Code::replica_failed});
    EXPECT_NE(said.find(words), std::string::npos) << said;
  };
  expect_refusal([&] { check_made_in(outside.variables(), strategy); });
  expect_refusal([&] { strategy.run([&] { outside(Tensor<float>({1, 1})); }); });
  Dense inside(1);
  {
    const Scope scope = strategy.scope();
    inside.build({1});
    check_made_in(inside.variables(), strategy);
  }
  expect_refusal([&] { other.run([&] { inside(Tensor<float>({1, 1})); }); });
  EXPECT_EQ(inside(Tensor<float>({1, 1})).item(), 0);
}

}  // namespace
}  // namespace lockstep::train
