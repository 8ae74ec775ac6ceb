// SPDX-License-Identifier: Apache-2.0
// Runs kernels by each set of vector instructions that this machine has, and compares bits. Include this first: it
// chooses the sets as the kernels do.
#pragma once

#include "runtime/train/compute/vectors.hpp"
// This include must follow vectors.hpp, which chooses the targets.
#include <hwy/highway.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace lockstep::test {

// Makes the kernels use one set of vector instructions while it lives.
class ForcedTarget {
 public:
  explicit ForcedTarget(std::int64_t target) { choose(target); }
  ~ForcedTarget() { choose(0); }
  ForcedTarget(const ForcedTarget&) = delete;
  ForcedTarget& operator=(const ForcedTarget&) = delete;

 private:
  static void choose(std::int64_t target) {
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  }
};

inline std::vector<std::int64_t> vector_targets() { return hwy::SupportedAndGeneratedTargets(); }

// Returns true if a target multiplies and adds with one rounding.
inline bool is_fused(std::int64_t target) { return target != HWY_SCALAR; }

// Multiplies and adds as a target does.
template <class T>
T multiply_add(bool fused, T a, T b, T sum) {
  if (fused) return std::fma(a, b, sum);
  const volatile T product = a * b;  // keeps the compiler from fusing it
  return product + sum;
}

template <class T>
bool has_same_bits(T a, T b) {
  using Bits = std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>;
  return std::bit_cast<Bits>(a) == std::bit_cast<Bits>(b) || (std::isnan(a) && std::isnan(b));
}

// Returns the first index whose bits differ, or nothing as text; so a failure names the place.
template <class T>
std::string difference(const std::vector<T>& found, const std::vector<T>& expected) {
  if (found.size() != expected.size()) return "sizes differ";
  for (std::size_t i = 0; i < found.size(); ++i) {
    if (!has_same_bits(found[i], expected[i]))
      return "at " + std::to_string(i) + " " + std::to_string(found[i]) + " instead of " + std::to_string(expected[i]);
  }
  return "";
}

// Returns numbers between -1 and 1.
template <class T>
std::vector<T> random_numbers(std::size_t count, unsigned seed) {
  std::mt19937 engine(seed);
  std::uniform_real_distribution<T> draw(-1, 1);
  std::vector<T> numbers(count);
  for (T& number : numbers) number = draw(engine);
  return numbers;
}

}  // namespace lockstep::test
