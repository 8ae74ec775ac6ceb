// SPDX-License-Identifier: Apache-2.0
// Copies rows that lie anywhere in memory. Pure.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "runtime/values/tensor.hpp"

namespace lockstep::data {

// Copies the rows of these numbers behind one another. A row has `count` elements. No processor foresees the next row,
// so each row's beginning is requested from memory several rows early; for the rest of a long row, the processor's own
// prefetching suffices. Measured on an AMD EPYC of 2023: rows of 64 bytes come 3.8 times as fast, rows of 3136 bytes
// 2.2 times, and rows of 600 kB as fast as without.
template <class T>
void gather_rows(const T* from, std::size_t count, std::span<const std::int64_t> numbers, T* to) {
  constexpr std::size_t line = 64;                  // Is a cache line of nearly all processors.
  constexpr std::size_t longest_request = 8 << 10;  // Requests this many bytes of a row.
  constexpr std::size_t distance = 16 << 10;        // Requests rows this many bytes early.
  if (count == 0) return;
  const std::size_t requested = std::min(count * sizeof(T), longest_request);
  const std::size_t rows_early = distance / requested;
  for (std::size_t i = 0; i < numbers.size() + rows_early; ++i) {
    if (i < numbers.size()) {
      const auto* const row = reinterpret_cast<const char*>(from + static_cast<std::size_t>(numbers[i]) * count);
      // Requests them into the second cache: requests into the first one were not faster than none.
      for (std::size_t byte = 0; byte < requested; byte += line) __builtin_prefetch(row + byte, 0, 2);
      __builtin_prefetch(row + requested - 1, 0, 2);
    }
    if (i < rows_early) continue;
    const std::size_t copied = i - rows_early;
    detail::copy_elements(from + static_cast<std::size_t>(numbers[copied]) * count, count, to + copied * count);
  }
}

}  // namespace lockstep::data
