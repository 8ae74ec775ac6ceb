// SPDX-License-Identifier: Apache-2.0
// Walks two tensors that are combined element by element. Common shapes have loops of their own, whose steps the
// compiler knows, so that it uses vectors.
#pragma once

#include <algorithm>
#include <cstddef>

#include "runtime/any_tensor.hpp"
#include "runtime/values/tensor_arithmetic.hpp"

namespace lockstep::train {

// True if `part` is the shape of the last axes of `whole`, apart from lengths of 1 on the left: a bias of rows.
inline bool is_repeated_row(const TensorShape& part, const TensorShape& whole) {
  const std::vector<std::int64_t>& few = part.lengths();
  const std::vector<std::int64_t>& all = whole.lengths();
  if (few.size() > all.size()) return false;
  const auto first = std::ranges::find_if(few, [](std::int64_t length) { return length != 1; });
  return std::equal(first, few.end(), all.end() - (few.end() - first));
}

// Calls `function` for the elements of one line.
template <std::size_t a_step, std::size_t b_step, class F>
void walk_line(std::size_t to, std::size_t a, std::size_t b, std::size_t length, F& function) {
  for (std::size_t i = 0; i < length; ++i) function(to + i, a + i * a_step, b + i * b_step);
}

// Calls `function(result index, a's index, b's index)` for each element of the combined shape, in the result's order.
template <class F>
void for_each_pair(const TensorShape& a, const TensorShape& b, F&& function) {
  if (a == b) return walk_line<1, 1>(0, 0, 0, a.count(), function);
  if (b.count() == 1 && b.rank() <= a.rank()) return walk_line<1, 0>(0, 0, 0, a.count(), function);
  if (a.count() == 1 && a.rank() <= b.rank()) return walk_line<0, 1>(0, 0, 0, b.count(), function);
  if (is_repeated_row(b, a)) {
    for (std::size_t at = 0; at < a.count(); at += b.count()) walk_line<1, 1>(at, at, 0, b.count(), function);
    return;
  }
  if (is_repeated_row(a, b)) {
    for (std::size_t at = 0; at < b.count(); at += a.count()) walk_line<1, 1>(at, 0, at, a.count(), function);
    return;
  }
  const lockstep::detail::BroadcastLines lines(a, b, "?");
  lines.for_each([&](std::size_t to, std::size_t from_a, std::size_t from_b) {
    if (lines.a_step() == 0)
      walk_line<0, 1>(to, from_a, from_b, lines.length(), function);
    else if (lines.b_step() == 0)
      walk_line<1, 0>(to, from_a, from_b, lines.length(), function);
    else
      walk_line<1, 1>(to, from_a, from_b, lines.length(), function);
  });
}

// Returns the shape of two tensors combined element by element. Throws Error usage if they don't fit.
inline TensorShape combined_shape(const TensorShape& a, const TensorShape& b, const char* symbol) {
  return a == b ? a : lockstep::detail::BroadcastLines(a, b, symbol).shape();
}

}  // namespace lockstep::train
