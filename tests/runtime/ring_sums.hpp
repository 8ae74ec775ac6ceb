// SPDX-License-Identifier: Apache-2.0
// The sums of a ring, by its definition: block b begins at replica b + 1, and each next replica adds its own value.
#pragma once

#include <cstddef>
#include <vector>

namespace lockstep::test {

// Returns a value that is rounded differently in another order of additions.
inline float ring_value(int replica, std::size_t i) {
  return 1.F / static_cast<float>(3 + static_cast<std::size_t>(replica) * 7 + i);
}

inline std::vector<float> ring_values(int replica, std::size_t count) {
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i) all[i] = ring_value(replica, i);
  return all;
}

// Takes a count that is a multiple of the number of replicas.
inline std::vector<float> ring_sums(int replicas, std::size_t count) {
  const auto n = static_cast<std::size_t>(replicas);
  std::vector<float> all(count);
  for (std::size_t i = 0; i < count; ++i) {
    const std::size_t block = i / (count / n);
    float total = ring_value(static_cast<int>((block + 1) % n), i);
    for (std::size_t step = 2; step <= n; ++step) total += ring_value(static_cast<int>((block + step) % n), i);
    all[i] = total;
  }
  return all;
}

}  // namespace lockstep::test
