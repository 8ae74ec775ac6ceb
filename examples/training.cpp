// SPDX-License-Identifier: Apache-2.0
// Trains a small network on drawn digits with two replicas, and evaluates it.
#include <lockstep.hpp>
#include <lockstep/data.hpp>
#include <lockstep/train.hpp>

#include <iostream>

int main() {
  using namespace lockstep;
  using namespace lockstep::train;
  const data::Digits digits = data::synthetic_digits(2000, 1);
  const Tensor<float> images = cast<float>(digits.images) / 255.F;

  MirroredStrategy strategy(2);
  const Scope scope = strategy.scope();
  set_random_seed(1);
  Sequential model(InputLayer({28, 28}), Flatten(), Dense(64, relu), Dense(10));
  model.compile({.loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .optimizer = SGD({.learning_rate = 0.1F}),
                 .metrics = {"accuracy"}});
  model.fit(images, digits.labels, {.epochs = 3, .batch_size = 64, .seed = 1});

  const data::Digits unseen = data::synthetic_digits(1000, 2);
  const Logs result = model.evaluate(cast<float>(unseen.images) / 255.F, unseen.labels, {.verbose = Verbose::silent});
  std::cout << (result["accuracy"] > 0.9 ? "it has learned" : "it has not learned") << '\n';
}
