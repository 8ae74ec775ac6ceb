// SPDX-License-Identifier: Apache-2.0
// Holds the cases of TensorFlow's own tests of training under strategies: gradients, metrics, models and optimizers in
// loops of a program. Under every strategy and layout.
#include <cmath>
#include <filesystem>

#include "runtime/train/callbacks.hpp"
#include "runtime/train/layers.hpp"
#include "runtime/train/losses.hpp"
#include "runtime/train/metrics.hpp"
#include "runtime/train/model.hpp"
#include "runtime/train/optimizer.hpp"
#include "runtime/train/tape.hpp"
#include "tests/runtime/layouts.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

using namespace train;
using Floats = Tensor<float>;

class TrainingCases : public EveryLayout {
 protected:
  bool is_central() const { return strategy->variable_layout({}).is_shared; }
  const float replicas = static_cast<float>(size());

  // Has 31 examples in batches of 10, so that some replicas have none in the last step.
  DistributedDataset<std::tuple<Floats, Floats>> zeros_of_models() const {
    return strategy->distribute(data::from_tensor_slices(std::tuple(Floats({31, 3}), Floats({31, 4}))).batch(10));
  }
  // Trains a network by a loop of the program: a step for each batch.
  template <class Network>
  void train_by_loop(Network& network, const std::vector<AnyVariable>& variables, Optimizer optimizer) {
    for (const auto& [x, y] : zeros_of_models()) {
      strategy->run(
          [&](const Floats& features, const Floats& labels) {
            Tape tape;
            const TapeTensor losses = mean_squared_error(labels, network(features, true));
            optimizer.minimize(tape, compute_average_loss(losses, {.global_batch_size = 10}), variables);
          },
          x, y);
    }
    EXPECT_EQ(optimizer.iterations(), 4);
    for (const AnyVariable& each : variables) each.check_sync();
  }
};

TEST_P(TrainingCases, TapesOfReplicasFollowTheirBatches) {
  strategy->run([&](ReplicaContext& context) {
    const auto id = static_cast<float>(context.replica_id_in_sync_group());
    const TapeTensor x = row({5 + 2 * id, 6 + 2 * id});
    Tape tape;
    tape.watch(x);
    EXPECT_EQ(tape.gradient(square(x), x).to<float>(), row({10 + 4 * id, 12 + 4 * id}));
  });
}

TEST_P(TrainingCases, TapesOfReplicasFollowMirroredVariables) {
  const Scope scope = strategy->scope();
  Variable w(1.5F, {.name = "w"});
  Variable b(0.5F, {.name = "b"});
  const auto gradients = strategy->run([&](ReplicaContext& context) {
    const auto x = static_cast<float>(context.replica_id_in_sync_group() + 1);
    Tape tape;
    const auto all = tape.gradient(TapeTensor(x) * w + b - TapeTensor(1.F), {w, b});
    return std::tuple(all[0].gradient.to<float>(), all[1].gradient.to<float>());
  });
  for (int i = 0; i < strategy->num_local_replicas(); ++i) {
    EXPECT_EQ(std::get<0>(gradients)[i].item(), static_cast<float>(first() + i + 1));
    EXPECT_EQ(std::get<1>(gradients)[i].item(), 1);
  }
}

TEST_P(TrainingCases, ThatDependOnNothingHaveNoGradient) {
  const Scope scope = strategy->scope();
  Variable x(1.F);
  strategy->run([&] {
    Tape tape({.persistent = true});
    const TapeTensor y = TapeTensor(3.F) * x;
    EXPECT_FALSE(tape.gradient(TapeTensor(x), y).has_value());
    EXPECT_TRUE(tape.gradient(y, x).has_value());
  });
}

TEST_P(TrainingCases, SeveralMetricsAreUpdatedInReplicas) {
  const Scope scope = strategy->scope();
  metrics::Mean one("one");
  metrics::Mean other("other");
  strategy->run([&] {
    one.update(5.F);
    other.update(5.F);
  });
  EXPECT_EQ(one.result(), 5);
  EXPECT_EQ(other.result(), 5);
}

TEST_P(TrainingCases, AMeanIsOverAllBatchesOfADataSet) {
  const Scope scope = strategy->scope();
  metrics::Mean mean;
  for (const auto& batch : strategy->distribute(data::range(10).batch(2)))
    strategy->run([&](const Tensor<std::int64_t>& values) { mean.update(cast<float>(values)); }, batch);
  EXPECT_EQ(mean.result(), 4.5F);
}

TEST_P(TrainingCases, AMeanOfWeighedBatchesThatEachReplicaSees) {
  const Scope scope = strategy->scope();
  metrics::Mean mean;
  const Floats weights = row({0.1F, 0.1F});
  for (const Tensor<std::int64_t>& batch : data::range(10).batch(2))
    strategy->run([&] { mean.update(cast<float>(batch), weights); });
  EXPECT_NEAR(mean.result(), 4.5F, 1e-6F);
}

TEST(TrainingCase, AMeanOutsideOfAllStrategies) {
  metrics::Mean mean;
  for (int value = 0; value < 10; ++value) mean.update(static_cast<float>(value));
  EXPECT_EQ(mean.result(), 4.5F);
}

TEST_P(TrainingCases, ALayerAloneIsAModel) {
  const Scope scope = strategy->scope();
  Dense layer(4, {.input_shape = TensorShape{3}});
  layer.build({3});
  for (const auto& [x, y] : zeros_of_models()) {
    const auto gradients = strategy->run(
        [&](const Floats& features, const Floats& labels) {
          Tape tape;
          const TapeTensor losses = mean_squared_error(labels, layer(features, true));
          return tape.gradient(losses, layer.trainable_variables())[0].gradient.to<float>();
        },
        x, y);
    for (const Floats& each : strategy->local_results(gradients)) EXPECT_EQ(each, Floats({3, 4}));
  }
}

// A program's own model.
struct TwoLayers {
  Dense hidden{3, DenseOptions{.activation = relu}};
  Dense out{4};
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

TEST_P(TrainingCases, ModelsOfEachKindAreTrainedByALoop) {
  const Scope scope = strategy->scope();
  Sequential sequential(InputLayer({3}), Dense(4));
  train_by_loop(sequential, sequential.trainable_variables(), Adam());
  TwoLayers own;
  own.hidden.build({3});
  own.out.build({3});
  train_by_loop(own, trainable_variables(own), SGD());
  StructModel wrapped(own);
  train_by_loop(wrapped, wrapped.trainable_variables(), Adagrad());
}

TEST_P(TrainingCases, BatchesOfAnyLengthAreNormalized) {
  const Scope scope = strategy->scope();
  Sequential model(InputLayer({3, 3, 3}), BatchNormalization(), Flatten(), Dense(4));
  SGD optimizer;
  const auto examples = data::from_tensor_slices(std::tuple(Floats({11, 3, 3, 3}, 1.F), Floats({11, 4})));
  for (const auto& [x, y] : strategy->distribute(examples.batch(10))) {
    strategy->run(
        [&](const Floats& features, const Floats& labels) {
          Tape tape;
          const TapeTensor losses = mean_squared_error(labels, model(features, true));
          optimizer.minimize(tape, compute_average_loss(losses, {.global_batch_size = 10}),
                             model.trainable_variables());
        },
        x, y);
  }
  for (const AnyVariable& each : model.trainable_variables()) {
    each.check_sync();
    for (const float value : each.as<float>().read()) EXPECT_TRUE(std::isfinite(value)) << each.path();
  }
}

TEST_P(TrainingCases, ModelsOfEqualWeightsTakeEqualSteps) {
  const Scope scope = strategy->scope();
  const Floats x({4, 3}, 0.5F);
  const Floats y({4, 4}, 1.F);
  std::vector<Floats> results;
  for (int model_number = 0; model_number < 2; ++model_number) {
    set_random_seed(3);
    Sequential model(InputLayer({3}), Dense(4));
    SGD optimizer({.learning_rate = 0.1F, .momentum = 0.01F});
    for (int step = 0; step < 10; ++step) {
      strategy->run([&] {
        Tape tape;
        optimizer.minimize(tape, reduce_mean(mean_squared_error(y, model(x, true))), model.trainable_variables());
      });
    }
    results.push_back(model.variables()[0].as<float>().read());
  }
  EXPECT_EQ(results[0], results[1]);
}

TEST_P(TrainingCases, LossesOfExamplesAreReducedOutside) {
  const auto losses = strategy->run([&](ReplicaContext& context) {
    const std::int64_t rows = context.replica_id_in_sync_group() == 0 ? 2 : 1;
    Floats probabilities({rows, 2}, 0.5F);
    return sparse_categorical_crossentropy(Tensor<std::int64_t>(TensorShape{rows}), probabilities).to<float>();
  });
  EXPECT_NEAR(strategy->reduce("MEAN", losses, 0).item(), std::log(2.F), 1e-6F);
}

TEST_P(TrainingCases, VariablesMayBeArgumentsOfRun) {
  const Scope scope = strategy->scope();
  Sequential model(InputLayer({3}), Dense(4));
  SGD optimizer;
  const std::vector<AnyVariable> variables = model.trainable_variables();
  const auto losses = strategy->run(
      [&](const std::vector<AnyVariable>& given) {
        Tape tape;
        const TapeTensor loss = reduce_mean(mean_squared_error(Floats({2, 4}, 1.F), model(Floats({2, 3}, 1.F), true)));
        optimizer.minimize(tape, loss, given);
        return loss.item();
      },
      variables);
  EXPECT_GT(strategy->reduce("SUM", losses), 0);
  EXPECT_EQ(optimizer.iterations(), 1);
}

TEST_P(TrainingCases, ProgramsMaySumGradientsThemselves) {
  const auto value_after = [&](bool aggregates) {
    const Scope scope = strategy->scope();
    Variable v(Floats(TensorShape{2}));
    SGD optimizer({.learning_rate = 0.1F});
    strategy->run([&](ReplicaContext& context) {
      const auto mine = static_cast<float>(context.replica_id_in_sync_group() + 1);
      optimizer.apply({{v, Gradient(AnyTensor(row({mine, mine})))}}, {.aggregate = aggregates});
    });
    std::vector<float> parts;
    for (const Floats& each : v.parts()) parts.push_back(each[0]);
    return parts;
  };
  const std::vector<float> summed = value_after(true);
  for (const float each : summed) EXPECT_NEAR(each, -0.1F * static_cast<float>(sum_of_ids() + size()), 1e-6F);
  if (is_central()) {
    EXPECT_PRED2(holds, refusal([&] { value_after(false); }, {Code::usage, Code::replica_failed}),
                 "without aggregation");
    return;
  }
  const std::vector<float> own = value_after(false);
  for (std::size_t i = 0; i < own.size(); ++i)
    EXPECT_NEAR(own[i], -0.1F * static_cast<float>(first() + static_cast<int>(i) + 1), 1e-6F);
}

// A layer of one weight and a bias shall give 1 for 1.
TEST_P(TrainingCases, NetworksComeNearerInEachStep) {
  for (const Optimizer& optimizer : {Optimizer(SGD(0.2F / replicas)), Optimizer(Adagrad(0.3F))}) {
    const Scope scope = strategy->scope();
    set_random_seed(1);
    Sequential model(InputLayer({1}), Dense(1));
    Optimizer own = optimizer;
    float last = 1e9F;
    for (int step = 0; step < 10; ++step) {
      strategy->run([&] {
        Tape tape;
        own.minimize(tape, reduce_sum(square(model(Floats({1, 1}, 1.F), true) - TapeTensor(1.F))),
                     model.trainable_variables());
      });
      const float error = std::abs(model(Floats({1, 1}, 1.F)).item() - 1);
      EXPECT_LE(error, last + 1e-6F) << own.name() << ", step " << step;
      last = error;
    }
  }
}

TEST_P(TrainingCases, AveragesMoveByTheMeanOfAllReplicasBatches) {
  for (const double momentum : {0.8, 0.9, 0.99}) {
    const Scope scope = strategy->scope();
    BatchNormalization layer({.momentum = momentum});
    layer.build({8});
    strategy->run([&](ReplicaContext& context) {
      const auto base = static_cast<float>(100 * context.replica_id_in_sync_group());
      Floats batch({16, 8});
      for (std::size_t i = 0; i < batch.size(); ++i) batch[i] = base + static_cast<float>(i / 8);
      layer(batch, true);
    });
    const double mean = 7.5 + 50.0 * static_cast<double>(size() - 1);
    for (const AnyVariable& each : layer.variables()) {
      if (each.name().find("moving_mean") == std::string::npos) continue;
      const Floats averages = each.as<float>().read();
      for (const float average : averages)
        EXPECT_NEAR(static_cast<double>(average), (1 - momentum) * mean, 1e-4 * (1 + mean));
    }
  }
}

// One weight of 2, the examples 2 and 7 with three times as much as labels.
TEST_P(TrainingCases, SumsAndMeansOfLossesScaleTheStep) {
  for (const bool is_mean : {false, true}) {
    const Scope scope = strategy->scope();
    Variable w(Floats({1, 1}, 2.F));
    SGD optimizer(0.001F);
    strategy->run([&](ReplicaContext& context) {
      Tape tape;
      const TapeTensor error = matmul(Floats({2, 1}, {2.F, 7.F}), w) - TapeTensor(Floats({2, 1}, {6.F, 21.F}));
      TapeTensor loss = is_mean ? reduce_mean(square(error)) : reduce_sum(square(error));
      if (is_mean) loss = loss / TapeTensor(static_cast<float>(context.num_replicas_in_sync()));
      optimizer.minimize(tape, loss, {w});
    });
    for (const Floats& each : w.parts()) EXPECT_NEAR(each[0], is_mean ? 2 + 0.053F : 2 + 0.106F * replicas, 1e-5F);
  }
}

TEST_P(TrainingCases, NoVariablesAreNoStep) {
  SGD optimizer;
  strategy->run([&] {
    Tape tape;
    optimizer.minimize(tape, TapeTensor(1.F), {});
    optimizer.apply({});
  });
  EXPECT_EQ(optimizer.iterations(), 0);
}

TEST_P(TrainingCases, ModelsMayLearnTheirShapeFromTheData) {
  const Scope scope = strategy->scope();
  Sequential model(Dense(2, relu), Dense(1));
  model.compile("mse", "sgd");
  model.fit(Floats({8, 3}, 1.F), Floats({8, 1}, 1.F), {.batch_size = 4, .verbose = Verbose::silent});
  EXPECT_EQ(model.variables().at(0).shape(), TensorShape({3, 2}));
  check_made_in(model.variables(), *strategy);
}

// Rows are drawn around 5 with the deviation 10; the layer shall bring them to 0 and 1.
TEST_P(TrainingCases, NormalizedPredictionsHaveNoMeanAndUnitVariance) {
  if (size() > 4) GTEST_SKIP() << lacks("needs replicas whose own batches have many rows");
  const Scope scope = strategy->scope();
  Sequential model(InputLayer({1}), BatchNormalization({.momentum = 0.8}));
  model.compile("mse", SGD(0.01F));
  const Floats x = random_normal({.mean = 5, .deviation = 10, .seed = 2})({800, 1});
  model.fit(x, x, {.epochs = 4, .batch_size = 80, .seed = 1, .verbose = Verbose::silent});
  Floats out = model.predict(x);
  const auto values = [&](std::size_t number) { return model.variables().at(number).as<float>().read().item(); };
  double sum = 0;
  double squares = 0;
  for (const float each : out) {
    const double normal = (static_cast<double>(each) - static_cast<double>(values(1))) / static_cast<double>(values(0));
    sum += normal;
    squares += normal * normal;
  }
  EXPECT_NEAR(sum / 800, 0, 0.1);
  EXPECT_NEAR(std::sqrt(squares / 800), 1, 0.1);
}

TEST_P(TrainingCases, SummariesAreOfTheChiefOnly) {
  const Folder folder;  // Each process has its own.
  const Scope scope = strategy->scope();
  Sequential model(InputLayer({1}), Dense(1));
  model.compile("mse", "sgd");
  const Floats x({4, 1}, 1.F);
  model.fit(x, x, {.callbacks = {TensorBoard({.log_dir = folder.path().string()})}, .verbose = Verbose::silent});
  EXPECT_EQ(std::filesystem::exists(folder.path() / "train"), first() == 0);
}

INSTANTIATE_TEST_SUITE_P(All, TrainingCases, testing::ValuesIn(layouts()),
                         [](const auto& each) { return each.param.name; });

}  // namespace
}  // namespace lockstep::test
