// SPDX-License-Identifier: Apache-2.0
// Reads numbers in memory as shuffled batches, and goes on at a saved position.
#include <lockstep/data.hpp>

#include <iostream>
#include <tuple>
#include <vector>

int main() {
  using namespace lockstep;
  const std::vector<float> hours{1, 2, 3, 4, 5, 6, 7};
  const std::vector<int> marks{10, 20, 30, 40, 50, 60, 70};
  const auto examples = data::from_tensor_slices(std::tuple(hours, marks));
  const auto batches =
      examples.map([](float x, int y) { return std::tuple(x / 2, y); }).shuffle(7, {.seed = 1}).batch(3);
  std::cout << batches << " of " << batches.length() << '\n';
  for (const auto& [x, y] : batches) std::cout << to_string(x) << " -> " << to_string(y) << '\n';

  auto loop = batches.open();
  loop.next();
  const Bytes position = loop.position();
  auto later = batches.open();
  later.seek(position);
  const auto rest = later.next();
  std::cout << (rest == loop.next() ? "the same batch" : "another batch") << '\n';
}
