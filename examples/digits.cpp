// SPDX-License-Identifier: Apache-2.0
// Counts the examples and the mean pixel of each class of drawn digits. The processes of a node share one copy of the
// digits, and replicas divide each batch.
//
//   digits                        one replica
//   digits 2                      two replicas
//   mpirun -n 2 digits 2          two ranks with two replicas each
#include <lockstep.hpp>
#include <lockstep/data.hpp>

#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>

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

}  // namespace

int main(int argc, char** argv) {
  using namespace lockstep;
  try {
    MultiWorkerMirroredStrategy strategy(argc > 1 ? std::atoi(argv[1]) : 1);
    const auto digits = strategy.shared_on_node([] {
      data::Digits drawn = data::synthetic_digits(number, 1);
      return std::pair(std::move(drawn.images), std::move(drawn.labels));
    });
    const auto examples =
        data::from_tensor_slices(digits).map([](const Tensor<std::uint8_t>& image, const Tensor<std::uint8_t>& label) {
          return std::tuple(cast<float>(image) / 255, cast<std::int64_t>(label));
        });
    Tensor<double> sums({10, 2});
    for (const auto& batch : strategy.distribute(examples.shuffle(number, {.seed = 1}).batch(128)))
      sums = sums + strategy.reduce("SUM", strategy.run(sums_of_classes, batch));
    if (strategy.replica(0).replica_id_in_sync_group() != 0) return 0;
    for (std::size_t digit = 0; digit < 10; ++digit)
      std::printf("%zu: %.0f examples, mean pixel %.4f\n", digit, sums[2 * digit],
                  sums[2 * digit + 1] / sums[2 * digit]);
    return 0;
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(exit_of(error.code()));
  }
}
