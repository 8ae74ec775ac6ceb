// SPDX-License-Identifier: Apache-2.0
// Measures what fit() adds to the same loop written by hand: the tutorial's network, batch 64, steps in turns.
//   fit_cost [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <vector>

#include "runtime/data/dataset.hpp"
#include "runtime/data/digits.hpp"
#include "runtime/train/layers.hpp"

namespace {

using namespace lockstep;
using namespace lockstep::train;
using Clock = std::chrono::steady_clock;

Sequential network() {
  set_random_seed(1);
  return Sequential(InputLayer({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = Activation::relu}),
                    Flatten(), Dense(128, {.activation = Activation::relu}), Dense(10));
}
double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}
double median(std::vector<double> all) {
  std::ranges::sort(all);
  return all[all.size() / 2];
}

// Notes the time between the ends of steps.
class StepTimes final : public Callback {
 public:
  std::vector<double> times;
  void on_epoch_begin(std::int64_t /*epoch*/, Logs& /*logs*/) override { last_ = Clock::now(); }
  void on_train_batch_end(std::int64_t /*step*/, Logs& /*logs*/) override {
    times.push_back(milliseconds_since(last_));
    last_ = Clock::now();
  }

 private:
  Clock::time_point last_;
};

}  // namespace

int main(int argc, char** argv) {
  constexpr std::int64_t steps = 10;
  const int rounds = argc > 1 ? std::atoi(argv[1]) : 10;
  MirroredStrategy strategy(1, {.log = Log(LogLevel::off)});
  const Scope scope = strategy.scope();
  data::Digits digits = data::synthetic_digits(640, 1);
  const auto dataset =
      data::from_tensor_slices(std::tuple(cast<float>(digits.images) / 255.F, digits.labels)).batch(64);

  Sequential model = network();
  StepTimes of_fit;
  model.compile({.loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .optimizer = SGD({.learning_rate = 0.01F}),
                 .metrics = {"accuracy"}});
  Sequential by_hand = network();
  SGD optimizer({.learning_rate = 0.01F});
  metrics::SparseCategoricalAccuracy accuracy;
  std::vector<double> of_loop;
  for (int round = 0; round < rounds; ++round) {
    model.fit(dataset, {.callbacks = {&of_fit}, .verbose = Verbose::silent});
    auto batches = strategy.distribute(dataset).open();
    for (std::int64_t step = 0; step < steps; ++step) {
      const auto start = Clock::now();
      const auto batch = batches.next();
      strategy.run(
          [&](const auto& both) {
            const auto& [images, labels] = both;
            Tape tape;
            const TapeTensor predictions = by_hand(images, true);
            const TapeTensor loss = compute_average_loss(sparse_categorical_crossentropy(labels, predictions, true),
                                                         {.global_batch_size = 64});
            optimizer.minimize(tape, loss, by_hand.trainable_variables());
            accuracy.update(labels, predictions);
          },
          *batch);
      of_loop.push_back(milliseconds_since(start));
    }
  }
  const double fit = median(of_fit.times);
  const double loop = median(of_loop);
  std::printf("fit %.3f ms, loop %.3f ms a step: %+.2f %%\n", fit, loop, 100 * (fit / loop - 1));
  return 0;
}
