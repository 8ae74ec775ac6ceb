// SPDX-License-Identifier: Apache-2.0
// Trains a little, and leaves event files in a folder, for a test that reads them by TensorBoard itself.
//   event_files FOLDER
#include <cstdio>

#include "runtime/data/dataset.hpp"
#include "runtime/train/layers.hpp"

int main(int argc, char** argv) {
  using namespace lockstep;
  using namespace lockstep::train;
  if (argc != 2) return 1;
  Sequential model(Dense(1, {.kernel_initializer = constant_initializer(-0.8624095F), .input_shape = TensorShape{1}}));
  model.compile("mse", "sgd");
  const auto dataset = data::from_tensors(std::tuple(row({1.F}), row({1.F}))).repeat(100).batch(10);
  const History history = model.fit(dataset, {.epochs = 2,
                                              .callbacks = {TensorBoard({.log_dir = argv[1], .update_freq = 5})},
                                              .validation_data = dataset,
                                              .verbose = Verbose::silent});
  for (const double loss : history["loss"]) std::printf("epoch_loss %.6f\n", loss);
  for (const double loss : history["val_loss"]) std::printf("val_loss %.6f\n", loss);
  return 0;
}
