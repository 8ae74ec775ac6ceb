// SPDX-License-Identifier: Apache-2.0
// Runs the training step of the page on TPUStrategy on one device, and prints ten losses. The page calls the outputs of
// its model logits, but its loss function takes probabilities unless it is told otherwise. So that is what it computes:
// an output below 0 or above 1 has no gradient. The kernel is one that makes probable outputs.
#include <lockstep.hpp>
#include <lockstep/data.hpp>
#include <lockstep/train.hpp>

#include <charconv>
#include <cstdio>
#include <iostream>
#include <string_view>

namespace {

using namespace lockstep;
using namespace lockstep::train;

// Prints the fewest digits that read back as the same number.
void print(float loss) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, loss).ptr;
  std::cout << std::string_view(text, static_cast<std::size_t>(end - text)) << '\n';
}

int run() {
  OneDeviceStrategy strategy("cpu:0");
  const Scope scope = strategy.scope();
  Sequential model(Dense(2, {.input_shape = TensorShape{5}}));
  SGD optimizer({.learning_rate = 0.1F});
  model.variables().at(0).as<float>().assign(
      Tensor<float>({5, 2}, {0.126F, 0.12F, 0.114F, 0.161F, 0.176F, 0.188F, 0.299F, 0.248F, 0.206F, 0.297F}));

  const Tensor<float> x({2, 5}, {0.625F, 0.897F, 0.776F, 0.225F, 0.3F, 0.874F, 0.005F, 0.821F, 0.797F, 0.468F});
  const Tensor<std::int64_t> y({2, 1}, {0, 1});
  const auto dataset = data::from_tensor_slices(std::tuple(x, y)).repeat().batch(1);
  auto iterator = strategy.distribute(dataset).open();

  const auto step_fn = [&](const Tensor<float>& features, const Tensor<std::int64_t>& labels) {
    Tape tape;
    const TapeTensor logits = model(features, /*training=*/true);
    const TapeTensor loss = sparse_categorical_crossentropy(labels, logits);
    optimizer.apply(tape.gradient(loss, model.trainable_variables()));
    return loss.to<float>();
  };
  for (int step = 0; step < 10; ++step) {
    const auto [features, labels] = *iterator.next();
    const auto losses = strategy.run(step_fn, features, labels);
    print(strategy.local_results(losses).front()[0]);
  }
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const lockstep::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(lockstep::exit_of(error.code()));
  }
}
