// SPDX-License-Identifier: Apache-2.0
// Adds many numbers in a fixed order with small errors: in blocks, whose sums are added in f64.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::train {

// Limit the elements of a block, of one line and of columns: guesses, for errors of a few units in the last place.
inline constexpr std::size_t line_block = 256;  // Has eight sums of 32 elements.
inline constexpr std::size_t column_block = 32;

// Returns the sum of `element(i)` for i below `count`.
template <class T, class F>
T sum_of(std::size_t count, F&& element) {
  constexpr std::size_t lanes = 8;
  double total = 0;
  for (std::size_t first = 0; first < count; first += line_block) {
    const std::size_t end = std::min(count, first + line_block);
    std::array<T, lanes> sums{};
    std::size_t i = first;
    for (; i + lanes <= end; i += lanes) {
      for (std::size_t lane = 0; lane < lanes; ++lane) sums[lane] += element(i + lane);
    }
    for (; i < end; ++i) sums[0] += element(i);
    for (const T each : sums) total += static_cast<double>(each);
  }
  return static_cast<T>(total);
}

// Writes the sum of each column of `element(i, j)`, where i counts in row-major order, and j is the column.
template <class T, class F>
void sum_columns(std::size_t rows, std::span<T> sums, F&& element) {
  const std::size_t columns = sums.size();
  std::ranges::fill(sums, T{});
  if (rows <= column_block) {
    for (std::size_t i = 0, at = 0; i < rows; ++i, at += columns) {
      for (std::size_t j = 0; j < columns; ++j) sums[j] += element(at + j, j);
    }
    return;
  }
  std::vector<T> block(columns);
  std::vector<double> totals(columns);
  for (std::size_t first = 0; first < rows; first += column_block) {
    std::ranges::fill(block, T{});
    for (std::size_t i = first; i < std::min(rows, first + column_block); ++i) {
      for (std::size_t j = 0; j < columns; ++j) block[j] += element(i * columns + j, j);
    }
    for (std::size_t j = 0; j < columns; ++j) totals[j] += static_cast<double>(block[j]);
  }
  for (std::size_t j = 0; j < columns; ++j) sums[j] = static_cast<T>(totals[j]);
}

}  // namespace lockstep::train
