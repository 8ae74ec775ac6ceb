// SPDX-License-Identifier: Apache-2.0
// Converts labels, indices and weights, which come in several types, to those in which models compute.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "runtime/any_tensor.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {

// Returns the elements as T. Throws Error usage unless they are f32, f64, i32, i64, u8 or bool.
template <class T>
Tensor<T> converted(const AnyTensor& tensor) {
  Tensor<T> result(tensor.shape());
  const auto is_copied = [&]<class From>(From /*type*/) {
    if (tensor.type() != data_type_of<From>) return false;
    const std::span<const From> from = tensor.span<From>();
    for (std::size_t i = 0; i < from.size(); ++i) result[i] = static_cast<T>(from[i]);
    return true;
  };
  if (is_copied(float{}) || is_copied(double{}) || is_copied(std::int32_t{}) || is_copied(std::int64_t{}) ||
      is_copied(std::uint8_t{}) || is_copied(bool{}))
    return result;
  throw Error(Code::usage, text("labels or indices of the type ", to_string(tensor.type())),
              "give f32, f64, i32, i64, u8 or bool");
}

// Returns the position of the greatest number of each row along the last axis, the first one of equals.
inline std::vector<std::int64_t> greatest_of_rows(const Tensor<float>& rows) {
  const auto width = static_cast<std::ptrdiff_t>(rows.shape()[-1]);
  std::vector<std::int64_t> all;
  for (auto row = rows.begin(); row != rows.end(); row += width)
    all.push_back(std::max_element(row, row + width) - row);
  return all;
}

}  // namespace lockstep::train
