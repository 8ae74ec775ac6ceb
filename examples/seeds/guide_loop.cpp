// SPDX-License-Identifier: Apache-2.0
// Runs the guide's own training loop, line by line, and prints its 30 losses.
//
//   guide_loop [REPLICAS] [--literal]
//
// The guide repeats its example 100 times in batches of 5 for each replica. That makes fewer than 20 steps if there are
// more than one replica, so the data repeat 20 times the global batch here, and 10 times for the second loop. --literal
// keeps the guide's 100; a last partial batch is then divided by the global batch size too, as the guide's loss is.
#include <lockstep.hpp>
#include <lockstep/data.hpp>
#include <lockstep/train.hpp>

#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <vector>

namespace {

using namespace lockstep;
using namespace lockstep::train;

// Prints the fewest digits that read back as the same number.
void print(float loss) {
  char text[32];
  const auto end = std::to_chars(text, text + sizeof text, loss).ptr;
  std::cout << std::string_view(text, static_cast<std::size_t>(end - text)) << '\n';
}

using Example = std::tuple<Tensor<float>, Tensor<float>>;

int run(int replicas, bool is_literal) {
  MirroredStrategy strategy(replicas);
  const std::int64_t batch_size_per_replica = 5;
  const std::int64_t global_batch_size = batch_size_per_replica * strategy.num_replicas_in_sync();

  const Scope scope = strategy.scope();
  // The guide draws its kernel. This one makes its losses.
  Sequential model(Dense(1, {.kernel_initializer = constant_initializer(1.0584904F), .input_shape = TensorShape{1}}));
  SGD optimizer;

  const BinaryCrossentropy loss_object({.from_logits = true, .reduction = Reduction::none});
  const auto compute_loss = [&](const TapeTensor& labels, const TapeTensor& predictions) {
    const TapeTensor per_example_loss = loss_object(labels, predictions);
    return compute_average_loss(per_example_loss, {.global_batch_size = global_batch_size});
  };
  const auto train_step = [&](const Tensor<float>& features, const Tensor<float>& labels) {
    Tape tape;
    const TapeTensor predictions = model(features, /*training=*/true);
    const TapeTensor loss = compute_loss(labels, predictions);
    optimizer.apply(tape.gradient(loss, model.trainable_variables()));
    return loss.item();
  };
  const auto distributed_train_step = [&](const auto& dist_inputs) {
    const auto& [features, labels] = dist_inputs;
    const auto per_replica_losses = strategy.run(train_step, features, labels);
    return strategy.reduce("SUM", per_replica_losses);
  };

  const auto example = data::from_tensors(std::tuple(row({1.F}), row({1.F})));
  const std::int64_t steps = is_literal ? 100 : 20 * global_batch_size;
  const auto dist_dataset = strategy.distribute(example.repeat(steps).batch(global_batch_size));
  for (const auto& dist_inputs : dist_dataset) print(distributed_train_step(dist_inputs));
  if (is_literal) return 0;

  auto iterator = dist_dataset.open();
  for (int step = 0; step < 10; ++step) print(distributed_train_step(*iterator.next()));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    int replicas = 1;
    bool is_literal = false;
    for (const std::string& word : std::vector<std::string>(argv + 1, argv + argc)) {
      if (word == "--literal")
        is_literal = true;
      else
        replicas = std::atoi(word.c_str());
    }
    return run(replicas, is_literal);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(exit_of(error.code()));
  }
}
