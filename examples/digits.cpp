// SPDX-License-Identifier: Apache-2.0
// Counts the examples and the mean pixel of each class of digits. Replicas divide each batch.
//
//   digits                        one replica; the processes of a node share one copy of drawn digits
//   digits 2                      two replicas
//   mpirun -n 2 digits 2          two ranks with two replicas each
//   digits write FOLDER           writes the drawn digits as two of MNIST's files
//   digits 2 FOLDER               reads such files, packed by gzip or not
#include <lockstep.hpp>
#include <lockstep/data.hpp>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace {

using lockstep::Tensor;

constexpr std::int64_t number = 6000;

// Returns the examples of each class in a batch, and the sum of their mean pixels.
Tensor<double> sums_of_classes(const std::tuple<Tensor<float>, Tensor<std::int64_t>>& batch) {
  const auto& [x, y] = batch;
  Tensor<double> sums({10, 2});
  for (std::int64_t i = 0; i < y.shape()[0]; ++i) {
    const auto place = 2 * static_cast<std::size_t>(y[static_cast<std::size_t>(i)]);
    double pixels = 0;
    for (const float pixel : x.rows(i, 1)) pixels += static_cast<double>(pixel);
    sums[place] += 1;
    sums[place + 1] += pixels / (28 * 28);
  }
  return sums;
}

using Digit = std::tuple<Tensor<std::uint8_t>, Tensor<std::uint8_t>>;

void print_classes(lockstep::Strategy& strategy, const lockstep::Dataset<Digit>& digits) {
  const auto examples = digits.map([](const Tensor<std::uint8_t>& image, const Tensor<std::uint8_t>& label) {
    return std::tuple(lockstep::cast<float>(image) / 255, lockstep::cast<std::int64_t>(label));
  });
  Tensor<double> sums({10, 2});
  for (const auto& batch : strategy.distribute(examples.shuffle(number, {.seed = 1}).batch(128)))
    sums = sums + strategy.reduce("SUM", strategy.run(sums_of_classes, batch));
  if (strategy.replica(0).replica_id_in_sync_group() != 0) return;
  for (std::size_t digit = 0; digit < 10; ++digit)
    std::printf("%zu: %.0f examples, mean pixel %.4f\n", digit, sums[2 * digit], sums[2 * digit + 1] / sums[2 * digit]);
}

void write(const std::string& folder) {
  const lockstep::data::Digits digits = lockstep::data::synthetic_digits(number, 1);
  lockstep::data::write_idx(folder + "/train-images-idx3-ubyte", digits.images);
  lockstep::data::write_idx(folder + "/train-labels-idx1-ubyte", digits.labels);
}

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  try {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() == 2 && words[0] == "write") {
      write(words[1]);
      return 0;
    }
    MultiWorkerMirroredStrategy strategy(words.empty() ? 1 : std::atoi(words[0].c_str()));
    if (words.size() < 2) {
      const auto digits = strategy.shared_on_node([] {
        data::Digits drawn = data::synthetic_digits(number, 1);
        return std::tuple(std::move(drawn.images), std::move(drawn.labels));
      });
      print_classes(strategy, data::from_tensor_slices(digits));
    } else {
      print_classes(strategy, data::zip(data::from_idx<Tensor<std::uint8_t>>(words[1] + "/train-images-idx3-ubyte*"),
                                        data::from_idx<Tensor<std::uint8_t>>(words[1] + "/train-labels-idx1-ubyte*")));
    }
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(exit_of(error.code()));
  }
}
