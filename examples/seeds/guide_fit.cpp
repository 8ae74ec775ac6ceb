// SPDX-License-Identifier: Apache-2.0
// Runs the guide's program for Model.fit, and prints its five numbers: the losses of two epochs over a data set, of the
// evaluation, and of two epochs over arrays. What fit() shows goes to standard error.
//
//   guide_fit [REPLICAS]
#include <lockstep.hpp>
#include <lockstep/data.hpp>
#include <lockstep/train.hpp>

#include <cstdio>
#include <cstdlib>
#include <iostream>

namespace {

void print_losses(const lockstep::train::History& history) {
  for (const double loss : history["loss"]) std::printf("%.4f\n", loss);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::train;
  try {
    MirroredStrategy mirrored_strategy(argc > 1 ? std::atoi(argv[1]) : 1);
    const Scope scope = mirrored_strategy.scope();
    // The guide draws its kernel. This one makes its losses.
    Sequential model(
        Dense(1, {.kernel_initializer = constant_initializer(-0.8624095F), .input_shape = TensorShape{1}}));
    model.compile("mse", "sgd");

    const auto dataset = data::from_tensors(std::tuple(row({1.F}), row({1.F}))).repeat(100).batch(10);
    print_losses(model.fit(dataset, {.epochs = 2, .output = &std::cerr}));
    std::printf("%.4f\n", model.evaluate(dataset, {.output = &std::cerr})["loss"]);

    const Tensor<float> inputs({100, 1}, 1.F);
    const Tensor<float> targets({100, 1}, 1.F);
    print_losses(model.fit(inputs, targets, {.epochs = 2, .batch_size = 10, .output = &std::cerr}));
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(exit_of(error.code()));
  }
}
