// SPDX-License-Identifier: Apache-2.0
// Computes one replica's part of a reduction along axes. Without elements the result is neutral: 0 for sums, infinity
// for minima. Pure.
#pragma once

#include <deque>
#include <functional>
#include <limits>
#include <vector>

#include "runtime/values/arithmetic.hpp"
#include "runtime/values/tensor.hpp"

namespace lockstep::detail {

// Returns the operation on elements for a reduction. An average adds.
inline UpdateOp change_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod:
      return UpdateOp::multiply;
    case ReduceOp::min:
      return UpdateOp::min;
    case ReduceOp::max:
      return UpdateOp::max;
    default:
      return UpdateOp::add;
  }
}

// Returns the value that changes nothing in a reduction.
template <class T>
T neutral(ReduceOp op) {
  if constexpr (is_small_float<T>) {
    return static_cast<T>(neutral<float>(op));
  } else if constexpr (is_complex<T>) {
    return op == ReduceOp::prod ? T(1) : T(0);
  } else {
    using Limits = std::numeric_limits<T>;
    if (op == ReduceOp::prod) return T(1);
    if (op == ReduceOp::min) return Limits::has_infinity ? Limits::infinity() : Limits::max();
    if (op == ReduceOp::max) return Limits::has_infinity ? static_cast<T>(-Limits::infinity()) : Limits::lowest();
    return T(0);
  }
}

// Is the type of intermediate results: float for sums of small floats.
template <class T>
using SumType = std::conditional_t<is_small_float<T>, float, T>;

template <class To, class From>
std::deque<Tensor<To>> all_converted(const std::deque<Tensor<From>>& tensors) {
  std::deque<Tensor<To>> all;
  for (const Tensor<From>& each : tensors) all.push_back(cast<To>(each));
  return all;
}

// Removes an axis: it combines the elements along it in their order.
template <class T>
Tensor<T> fold(ReduceOp op, const Tensor<T>& tensor, int axis) {
  const auto length = static_cast<std::size_t>(tensor.shape()[axis]);
  const std::size_t inside = tensor.shape().inside(axis);
  const UpdateOp change = change_of(op);
  Tensor<T> result(tensor.shape().without(axis), neutral<T>(op));
  for (std::size_t to = 0; to < result.size(); ++to) {
    const std::size_t first = to / inside * inside * length + to % inside;
    for (std::size_t i = 0; i < length; ++i) result[to] = changed(change, result[to], tensor[first + i * inside]);
  }
  return result;
}

// Returns the axes from the last to the first, so that removing one keeps the numbers of the others.
std::vector<int> folded_axes(const TensorShape& shape, const std::vector<int>& axes);

// Removes several axes, with intermediate results of type Wide.
template <class Wide, class T>
Tensor<Wide> fold(ReduceOp op, const Tensor<T>& tensor, const std::vector<int>& axes) {
  Tensor<Wide> result = cast<Wide>(tensor);
  for (const int axis : folded_axes(tensor.shape(), axes)) result = fold(op, result, axis);
  return result;
}

// Returns the shape after the axes are removed.
inline TensorShape folded_shape(TensorShape shape, const std::vector<int>& axes) {
  for (const int axis : folded_axes(shape, axes)) shape = shape.without(axis);
  return shape;
}

// Returns the number of elements that are combined into one.
inline std::uint64_t number_folded(const TensorShape& shape, const std::vector<int>& axes) {
  std::uint64_t number = 1;
  for (const int axis : folded_axes(shape, axes)) number *= static_cast<std::uint64_t>(shape[axis]);
  return number;
}

}  // namespace lockstep::detail
