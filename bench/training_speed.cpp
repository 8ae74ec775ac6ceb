// SPDX-License-Identifier: Apache-2.0
// Measures what fit() adds to the same loop written by hand, with the network of TensorFlow's tutorial and batches of
// 64, in turns; and a step of the guide's training loop in two replicas of this process. The argument is the number of
// turns (default: 20). The exit code is 3 if fit() adds more than 3 %, or the step takes more than 30 us.
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "bench/statistics.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/data/digits.hpp"
#include "runtime/train/layers.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::train;
using Clock = std::chrono::steady_clock;

constexpr double most_added = 0.03;
constexpr double most_us = 30;
constexpr std::int64_t steps_of_turn = 10;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

Sequential network() {
  set_random_seed(1);
  return Sequential(InputLayer({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = relu}), Flatten(),
                    Dense(128, relu), Dense(10));
}

// Notes the time between the ends of steps.
class StepTimes final : public Callback {
 public:
  std::vector<double> us;
  void on_epoch_begin(std::int64_t /*epoch*/, Logs& /*logs*/) override { last_ = Clock::now(); }
  void on_train_batch_end(std::int64_t /*step*/, Logs& /*logs*/) override {
    us.push_back(us_since(last_));
    last_ = Clock::now();
  }

 private:
  Clock::time_point last_;
};

// Returns the time of the loop by hand, relative to that of fit().
bench::Ratio measure_fit(int turns) {
  MirroredStrategy strategy(1, {.log = Log(LogLevel::off)});
  const Scope scope = strategy.scope();
  data::Digits digits = data::synthetic_digits(64 * steps_of_turn, 1);
  const auto dataset =
      data::from_tensor_slices(std::tuple(cast<float>(digits.images) / 255.F, digits.labels)).batch(64);
  Sequential model = network();
  model.compile({.loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .optimizer = SGD({.learning_rate = 0.01F}),
                 .metrics = {"accuracy"}});
  Sequential by_hand = network();
  SGD optimizer({.learning_rate = 0.01F});
  metrics::SparseCategoricalAccuracy accuracy;
  const auto step = [&](const auto& both) {
    const auto& [images, labels] = both;
    Tape tape;
    const TapeTensor predictions = by_hand(images, true);
    const TapeTensor loss =
        compute_average_loss(sparse_categorical_crossentropy(labels, predictions, true), {.global_batch_size = 64});
    optimizer.minimize(tape, loss, by_hand.trainable_variables());
    accuracy.update(labels, predictions);
  };
  std::vector<bench::PairedBlock> blocks;
  for (int turn = 0; turn <= turns; ++turn) {
    StepTimes of_fit;
    model.fit(dataset, {.callbacks = {&of_fit}, .verbose = Verbose::silent});
    std::vector<double> of_loop;
    auto batches = strategy.distribute(dataset).open();
    for (std::int64_t i = 0; i < steps_of_turn; ++i) {
      const auto start = Clock::now();
      const auto batch = batches.next();
      strategy.run(step, *batch);
      of_loop.push_back(us_since(start));
    }
    if (turn > 0) blocks.push_back({bench::median_of(of_loop), bench::median_of(of_fit.us)});
  }
  return bench::ratio_of_blocks(blocks);
}

// Returns the microseconds of the guide's steps.
bench::Summary measure_guide(int turns) {
  MirroredStrategy strategy(2, {.log = Log(LogLevel::off)});
  const Scope scope = strategy.scope();
  Sequential model(Dense(1, {.input_shape = TensorShape{1}}));
  SGD optimizer;
  const BinaryCrossentropy loss_of({.from_logits = true, .reduction = Reduction::none});
  const auto train_step = [&](const Tensor<float>& features, const Tensor<float>& labels) {
    Tape tape;
    const TapeTensor loss = compute_average_loss(loss_of(labels, model(features, true)), {.global_batch_size = 10});
    optimizer.apply(tape.gradient(loss, model.trainable_variables()));
    return loss.item();
  };
  const auto example = data::from_tensors(std::tuple(row({1.F}), row({1.F})));
  auto iterator = strategy.distribute(example.repeat().batch(10)).open();
  std::vector<double> us;
  for (int turn = 0; turn <= turns; ++turn) {
    constexpr int steps = 500;
    const auto start = Clock::now();
    for (int i = 0; i < steps; ++i) {
      const auto batch = iterator.next();
      const auto& [features, labels] = *batch;
      strategy.reduce(sum, strategy.run(train_step, features, labels));
    }
    if (turn > 0) us.push_back(us_since(start) / steps);
  }
  return bench::summarize(us);
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const int turns = argc > 1 ? std::max(1, std::atoi(argv[1])) : 20;
    const bench::Ratio fit = measure_fit(turns);
    const double added = 1 / fit.value - 1;
    std::cout << text("fit() adds ", with_decimals(100 * added, 2), " % [", with_decimals(100 / fit.ci.high - 100, 2),
                      ", ", with_decimals(100 / fit.ci.low - 100, 2), "] to the loop by hand\n");
    const bench::Summary guide = measure_guide(turns);
    std::cout << text("a step of the guide's loop in two replicas: ", with_decimals(guide.median, 1), " us [",
                      with_decimals(guide.ci.low, 1), ", ", with_decimals(guide.ci.high, 1), "]\n");
    return added > most_added || guide.median > most_us ? 3 : 0;
  } catch (const Error& error) {
    std::cerr << error.what() << '\n';
    return static_cast<int>(exit_of(error.code()));
  }
}
