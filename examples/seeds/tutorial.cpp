// SPDX-License-Identifier: Apache-2.0
// Runs the tutorial of multi-worker training: a small network for digits on one worker, then on all workers, and
// once more with data that are not sharded.
//
//   tutorial                          one process is the only worker
//   mpirun -n 2 tutorial              two workers; or one program for each task of TF_CONFIG
//
// Options, as NAME VALUE: --data FOLDER (MNIST's IDX files; by default drawn digits), --replicas N of each worker,
// --batch N of all replicas (by default 64 for each), --epochs N, --steps N of an epoch, --learning-rate R.
#include <lockstep.hpp>
#include <lockstep/data.hpp>
#include <lockstep/train.hpp>

#include <charconv>
#include <cstdio>
#include <iostream>
#include <map>
#include <string>
#include <vector>

namespace {

using namespace lockstep;
using namespace lockstep::train;

struct Options {
  std::string data;
  std::int64_t replicas = 1;
  std::int64_t batch = 0;
  std::int64_t epochs = 3;
  std::int64_t steps = 70;
  float learning_rate = 0.001F;
};

[[noreturn]] void refuse(const std::string& word) {
  throw Error(Code::usage, text('"', word, "\" is not expected here"),
              "the options are --data FOLDER, --replicas N, --batch N, --epochs N, --steps N, --learning-rate R");
}

template <class T>
void read(const std::string& word, T& number) {
  const char* const end = word.data() + word.size();
  if (const auto [stop, fault] = std::from_chars(word.data(), end, number); stop != end || fault != std::errc())
    refuse(word);
}

Options parse(const std::vector<std::string>& words) {
  Options options;
  for (std::size_t i = 0; i < words.size(); i += 2) {
    if (i + 1 == words.size()) refuse(words[i]);
    const std::string& value = words[i + 1];
    if (words[i] == "--data")
      options.data = value;
    else if (words[i] == "--replicas")
      read(value, options.replicas);
    else if (words[i] == "--batch")
      read(value, options.batch);
    else if (words[i] == "--epochs")
      read(value, options.epochs);
    else if (words[i] == "--steps")
      read(value, options.steps);
    else if (words[i] == "--learning-rate")
      read(value, options.learning_rate);
    else
      refuse(words[i]);
  }
  return options;
}

using Digit = std::tuple<Tensor<std::uint8_t>, Tensor<std::uint8_t>>;

Dataset<Digit> digits_in(const std::string& folder) {
  if (!folder.empty())
    return data::zip(data::from_idx<Tensor<std::uint8_t>>(folder + "/train-images-idx3-ubyte*"),
                     data::from_idx<Tensor<std::uint8_t>>(folder + "/train-labels-idx1-ubyte*"));
  data::Digits drawn = data::synthetic_digits(6000, 1);
  return data::from_tensor_slices(std::tuple(std::move(drawn.images), std::move(drawn.labels)));
}

auto mnist_dataset(const std::string& folder, std::int64_t batch_size) {
  const auto scaled = digits_in(folder).map([](const Tensor<std::uint8_t>& image, const Tensor<std::uint8_t>& label) {
    return std::tuple(cast<float>(image) / 255.F, cast<std::int64_t>(label));
  });
  return scaled.shuffle(60000, {.seed = 1}).repeat().batch(batch_size);
}

Sequential build_and_compile_cnn_model(float learning_rate) {
  set_random_seed(1);
  Sequential model(InputLayer({28, 28}), Reshape({28, 28, 1}), Conv2D(32, 3, {.activation = relu}), Flatten(),
                   Dense(128, {.activation = relu}), Dense(10));
  model.compile({.loss = SparseCategoricalCrossentropy({.from_logits = true}),
                 .optimizer = SGD({.learning_rate = learning_rate}),
                 .metrics = {"accuracy"}});
  return model;
}

int run(const Options& options) {
  MultiWorkerMirroredStrategy strategy(static_cast<int>(options.replicas));
  const bool is_chief = strategy.replica(0).replica_id_in_sync_group() == 0;
  const FitOptions fit_options{.epochs = options.epochs, .steps_per_epoch = options.steps};

  if (is_chief) {
    std::cout << "# one worker\n";
    const auto single_worker_dataset = mnist_dataset(options.data, 64);
    Sequential single_worker_model = build_and_compile_cnn_model(options.learning_rate);
    single_worker_model.fit(single_worker_dataset, fit_options);
  }

  if (is_chief) std::cout << "# " << strategy.describe() << '\n';
  const std::int64_t global_batch_size = options.batch > 0 ? options.batch : strategy.global_batch(64);
  const auto multi_worker_dataset = mnist_dataset(options.data, global_batch_size);
  const Scope scope = strategy.scope();
  Sequential multi_worker_model = build_and_compile_cnn_model(options.learning_rate);
  const History history = multi_worker_model.fit(multi_worker_dataset, fit_options);
  if (is_chief) {
    for (const double loss : history["loss"]) std::printf("loss %.17g\n", loss);
    std::cout << "# without sharding: each worker reads all examples\n";
  }
  const auto dataset_no_auto_shard = multi_worker_dataset.with_options({.sharding = data::Sharding::off});
  multi_worker_model.fit(dataset_no_auto_shard, {.epochs = 1, .steps_per_epoch = options.steps});
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(parse({argv + 1, argv + argc}));
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(exit_of(error.code()));
  }
}
