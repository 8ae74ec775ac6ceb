// SPDX-License-Identifier: Apache-2.0
// Finds the elements that meet if shapes are broadcast.
#include "runtime/values/tensor_arithmetic.hpp"

#include <algorithm>
#include <vector>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {
namespace {

// Returns the length of an axis, counted from the last one; 1 for an axis that is missing.
std::int64_t length_from_end(const TensorShape& shape, int axis) { return axis < shape.rank() ? shape[-1 - axis] : 1; }

TensorShape broadcast_shape(const TensorShape& a, const TensorShape& b, const char* symbol) {
  const int rank = std::max(a.rank(), b.rank());
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(rank));
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t one = length_from_end(a, axis);
    const std::int64_t other = length_from_end(b, axis);
    if (one != other && one != 1 && other != 1)
      throw Error(Code::usage,
                  text("a ", symbol, " b of the shapes ", a.to_string(), " and ", b.to_string(), ": ", one, " and ",
                       other, " elements along axis ", -1 - axis),
                  "give tensors of equal shape; a length of 1, or an axis that is missing on the left, is repeated");
    lengths[static_cast<std::size_t>(rank - 1 - axis)] = one == 1 ? other : one;
  }
  return TensorShape(std::move(lengths));
}

}  // namespace

// Operands of one shape, and single elements, have one line.
BroadcastLines::BroadcastLines(const TensorShape& a, const TensorShape& b, const char* symbol)
    : shape_(broadcast_shape(a, b, symbol)) {
  const bool is_one_line = (a == shape_ || a.count() == 1) && (b == shape_ || b.count() == 1);
  length_ = is_one_line ? shape_.count() : static_cast<std::size_t>(shape_[-1]);
  a_step_ = (is_one_line ? a.count() : static_cast<std::size_t>(length_from_end(a, 0))) == 1 ? 0 : 1;
  b_step_ = (is_one_line ? b.count() : static_cast<std::size_t>(length_from_end(b, 0))) == 1 ? 0 : 1;
  if (is_one_line) return;
  axes_ = shape_.rank() - 1;
  std::size_t a_stride = a_step_ == 0 ? 1 : length_;
  std::size_t b_stride = b_step_ == 0 ? 1 : length_;
  for (int axis = 1; axis <= axes_; ++axis) {
    const auto at = static_cast<std::size_t>(axis - 1);
    lengths_[at] = static_cast<std::size_t>(shape_[-1 - axis]);
    const auto a_length = static_cast<std::size_t>(length_from_end(a, axis));
    const auto b_length = static_cast<std::size_t>(length_from_end(b, axis));
    a_strides_[at] = a_length == 1 ? 0 : a_stride;
    b_strides_[at] = b_length == 1 ? 0 : b_stride;
    a_stride *= a_length;
    b_stride *= b_length;
  }
}

void BroadcastLines::for_each(const std::function<void(std::size_t, std::size_t, std::size_t)>& line) const {
  for (std::size_t first = 0; first < shape_.count(); first += length_) {
    std::size_t rest = first / length_;
    std::size_t a_first = 0;
    std::size_t b_first = 0;
    for (std::size_t axis = 0; axis < static_cast<std::size_t>(axes_); ++axis) {
      a_first += rest % lengths_[axis] * a_strides_[axis];
      b_first += rest % lengths_[axis] * b_strides_[axis];
      rest /= lengths_[axis];
    }
    line(first, a_first, b_first);
  }
}

void check_in_place(const TensorShape& a, const TensorShape& result, const char* symbol) {
  if (a == result) return;
  throw Error(Code::usage,
              text("a ", symbol, "= b would change the shape of a from ", a.to_string(), " to ", result.to_string()),
              text("write a = a ", symbol, " b, or reduce b first"));
}

}  // namespace lockstep::detail
