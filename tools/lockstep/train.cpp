// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep train`: trains the network of the multi-worker tutorial, and prints a checksum of its weights.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <iostream>
#include <memory>
#include <tuple>
#include <vector>

#include "runtime/any_strategy.hpp"
#include "runtime/data/dataset.hpp"
#include "runtime/data/digits.hpp"
#include "runtime/data/files/crc32c.hpp"
#include "runtime/data/files/idx.hpp"
#include "runtime/distributed_dataset.hpp"
#include "runtime/train/layers.hpp"
#include "runtime/train/model.hpp"
#include "tools/lockstep/command.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

// Splits "mirrored:2" into the name and the number, which is 0 if there is none.
std::pair<std::string, int> parse_strategy(const std::string& word) {
  const std::size_t colon = word.find(':');
  if (colon == std::string::npos) return {word, 0};
  const std::string_view digits = std::string_view(word).substr(colon + 1);
  int number = 0;
  const auto [stop, fault] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (fault != std::errc() || stop != digits.data() + digits.size() || number < 1 || number > 1024)
    throw Error(Code::usage, text("--strategy is \"", printable(word), '"'),
                "give a number of replicas from 1 to 1024 after the colon: mirrored:2");
  return {word.substr(0, colon), number};
}

AnyStrategy make_strategy_of(const std::string& word) {
  const auto [name, number] = parse_strategy(word);
  const bool has_number = number > 0;
  if (name == "default" && !has_number) return {};
  if (name == "one" && !has_number) return make_strategy<OneDeviceStrategy>();
  if (name == "central") return make_strategy<CentralStorageStrategy>(std::max(number, 1));
  if (name == "mirrored")
    return has_number ? make_strategy<MirroredStrategy>(number) : make_strategy<MirroredStrategy>();
  if (name == "workers")
    return has_number ? make_strategy<MultiWorkerMirroredStrategy>(number)
                      : make_strategy<MultiWorkerMirroredStrategy>();
  throw Error(Code::usage, text("--strategy is \"", printable(word), '"'),
              "give default, one, central:N, mirrored:N or workers:N");
}

float parse_rate(const std::string& word) {
  float rate = 0;
  const char* const end = word.data() + word.size();
  const auto [stop, fault] = std::from_chars(word.data(), end, rate);
  if (fault != std::errc() || stop != end || !(rate > 0) || !std::isfinite(rate))
    throw Error(Code::usage, text("--learning-rate is \"", printable(word), '"'), "give a positive number: 0.05");
  return rate;
}

using Digit = std::tuple<Tensor<std::uint8_t>, Tensor<std::uint8_t>>;

Dataset<Digit> digits_of(const ParsedOptions& parsed) {
  if (const auto folder = parsed.value("data")) {
    const auto images = data::from_idx<Tensor<std::uint8_t>>(*folder + "/train-images-idx3-ubyte*");
    return data::zip(images, data::from_idx<Tensor<std::uint8_t>>(*folder + "/train-labels-idx1-ubyte*"));
  }
  data::Digits drawn = data::synthetic_digits(6000, 1);
  return data::from_tensor_slices(std::tuple(std::move(drawn.images), std::move(drawn.labels)));
}

train::Sequential make_model(float learning_rate) {
  using namespace train;
  set_random_seed(1);
  Sequential model(InputLayer({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = relu}), Flatten(),
                   Dense(128, {.activation = relu}), Dense(10));
  model.compile({.loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .optimizer = SGD({.learning_rate = learning_rate}),
                 .metrics = {"accuracy"}});
  return model;
}

// Measures steps from the end of one to the end of the next.
class StepClock final : public train::Callback {
 public:
  void on_epoch_begin(std::int64_t /*epoch*/, train::Logs& /*logs*/) override { last_ = Clock::now(); }
  void on_train_batch_end(std::int64_t /*step*/, train::Logs& /*logs*/) override {
    const Clock::time_point now = Clock::now();
    steps_.push_back(std::chrono::duration<double, std::milli>(now - last_).count());
    last_ = now;
  }
  std::size_t steps() const { return steps_.size(); }
  // Returns the median of the milliseconds of a step.
  double median() {
    if (steps_.empty()) return 0;
    const auto middle = steps_.begin() + static_cast<std::ptrdiff_t>(steps_.size() / 2);
    std::ranges::nth_element(steps_, middle);
    return *middle;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point last_;
  std::vector<double> steps_;
};

std::string weights_of(const train::Sequential& model) {
  std::string all;
  for (const AnyVariable& variable : model.variables()) {
    const std::vector<std::byte> bytes = variable.saved();
    all.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  }
  return hexadecimal(data::crc32c(all)).substr(8);  // It has 32 bits.
}

}  // namespace

const Manual& train_manual() {
  static const Manual manual{
      .name = "train",
      .one_line = "train a small network on digits, under any strategy",
      .synopsis = "[mpirun -n N] lockstep train [--strategy NAME[:N]] [--batch N] [--epochs N | --steps N] [...]",
      .description =
          R"manual(Trains the network of TensorFlow's tutorial on multi-worker training: a convolution and two dense
layers. The data are MNIST's files, or drawn digits. The first replica's process prints the loss and
the accuracy of each epoch. The last line is a checksum of all weights: programs with equal weights
print the same.)manual",
      .options = {{"strategy", 0, "NAME", "default, one, central:N, mirrored:N or workers:N (default: workers)."},
                  {"data", 0, "FOLDER", "Folder of train-images-idx3-ubyte and train-labels-idx1-ubyte, or their .gz."},
                  {"batch", 0, "N", "Examples of each replica in a step (default: 64)."},
                  {"epochs", 0, "N", "Number of epochs of 70 steps (default: 3)."},
                  {"steps", 0, "N", "Number of steps in total, instead of epochs."},
                  {"learning-rate", 0, "R", "Learning rate (default: 0.05)."}},
      .examples =
          "  mpirun -n 2 lockstep train --steps 100\n"
          "      trains with two workers of one replica each\n"
          "  lockstep train --strategy mirrored:2 --data mnist\n"
          "      trains with two replicas in one process\n",
      .exit_codes =
          "  0  trained\n  1  wrong use\n  4  a rank did not arrive in time\n  5  a rank ended before the others\n"
          "  6  unfit environment\n",
  };
  return manual;
}

Exit run_train(const ParsedOptions& parsed) {
  const auto batch = parsed.integer("batch", 1, 1 << 20, 64);
  const auto epochs = parsed.integer("epochs", 1, 1 << 20, 3);
  const auto steps = parsed.integer("steps", 1, 1LL << 40, 0);
  if (parsed.has("epochs") && parsed.has("steps"))
    throw Error(Code::usage, "--epochs and --steps are both given", "give one of them");
  const auto learning_rate = parse_rate(parsed.value("learning-rate").value_or("0.05"));
  const AnyStrategy strategy = make_strategy_of(parsed.value("strategy").value_or("workers"));
  const auto examples = digits_of(parsed).map([](const Tensor<std::uint8_t>& image, const Tensor<std::uint8_t>& label) {
    return std::tuple(cast<float>(image) / 255.F, cast<std::int64_t>(label));
  });
  const auto dataset = examples.shuffle(60000, {.seed = 1}).repeat().batch(strategy->global_batch(batch));
  const Scope scope = strategy->scope();
  train::Sequential model = make_model(learning_rate);
  StepClock clock;
  train::FitOptions options{.epochs = epochs, .steps_per_epoch = 70, .callbacks = {&clock}};
  if (steps > 0) {
    options.epochs = 1;
    options.steps_per_epoch = steps;
  }
  model.fit(dataset, options);
  const std::string weights = weights_of(model);
  if (strategy->replica(0).replica_id_in_sync_group() == 0)
    std::cout << text("# ", clock.steps(), " steps, ", clock.median(), " ms a step (median)\nweights ", weights, '\n')
              << std::flush;
  return Exit::success;
}

}  // namespace lockstep::command
