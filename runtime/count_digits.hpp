// SPDX-License-Identifier: Apache-2.0
// Adds 64-bit integers over replicas inside a sum or mean of another type. An integer is cut into digits so small that
// their sums stay exact in that type.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "collectives/types.hpp"

namespace lockstep::detail {

// Tells how integers are cut.
struct CountDigits {
  DataType type = DataType::i64;
  ReduceOp op = ReduceOp::sum;
  int bits = 64;    // Is the size of a digit.
  int divisor = 1;  // Is the number by which `op` divides the sum.

  // Returns the number of digits of this many integers.
  std::size_t digits(std::size_t counts) const { return counts * static_cast<std::size_t>((64 + bits - 1) / bits); }
  // Writes the digits of `counts`, as elements of the type.
  void encode(std::span<const std::int64_t> counts, std::byte* digits) const;
  // Returns to `counts` the sums of which `digits` holds the sums of digits. They wrap around as 64-bit integers do.
  void decode(const std::byte* digits, std::span<std::int64_t> counts) const;
};

// Returns the digits that go with values of these types, which `op` combines over the replicas: the largest that stay
// exact. If none do, returns whole integers, which are added in a call of their own. `is_narrow` is true if 32-bit
// floats may travel as 16-bit ones.
CountDigits choose_count_digits(const std::vector<DataType>& types, ReduceOp op, int replicas, bool is_narrow);

}  // namespace lockstep::detail
