// SPDX-License-Identifier: Apache-2.0
// Checks shapes, and computes with them.
#include "runtime/values/tensor_shape.hpp"

#include <utility>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

TensorShape::TensorShape(std::vector<std::int64_t> lengths) : lengths_(std::move(lengths)) {
  if (rank() > most_axes)
    throw Error(Code::usage, text("a shape of ", rank(), " axes"), text("there can be ", most_axes));
  bool is_empty = false;
  for (const std::int64_t length : lengths_) {
    std::int64_t product = 0;
    is_empty = is_empty || length == 0;
    if (length < 0 || __builtin_mul_overflow(static_cast<std::int64_t>(count_), length == 0 ? 1 : length, &product))
      throw Error(Code::usage, text("there is no shape ", to_string()),
                  "lengths are not negative, and the product of those that are not 0 fits into 63 bits");
    count_ = static_cast<std::size_t>(product);
  }
  if (is_empty) count_ = 0;
}

int TensorShape::find(int axis) const {
  const int from_begin = axis < 0 ? axis + rank() : axis;
  if (from_begin < 0 || from_begin >= rank())
    throw Error(Code::usage, text("there is no axis ", axis, " in the shape ", to_string()),
                rank() == 0 ? std::string("a scalar has no axes") : text("axes are ", -rank(), " to ", rank() - 1));
  return from_begin;
}

TensorShape TensorShape::with(int axis, std::int64_t length) const {
  std::vector<std::int64_t> lengths = lengths_;
  lengths[static_cast<std::size_t>(find(axis))] = length;
  return TensorShape(std::move(lengths));
}

TensorShape TensorShape::without(int axis) const {
  std::vector<std::int64_t> lengths = lengths_;
  lengths.erase(lengths.begin() + find(axis));
  return TensorShape(std::move(lengths));
}

TensorShape TensorShape::rows(std::int64_t first, std::int64_t number) const {
  const std::int64_t all = (*this)[0];
  if (first < 0 || number < 0 || first > all || number > all - first)
    throw Error(Code::usage, text("rows(", first, ", ", number, ") of the shape ", to_string()),
                text("give a first row and a number of rows within the ", all, " of the first axis"));
  return with(0, number);
}

std::size_t TensorShape::inside(int axis) const {
  std::size_t product = 1;
  for (int i = find(axis) + 1; i < rank(); ++i) product *= static_cast<std::size_t>((*this)[i]);
  return product;
}

std::size_t TensorShape::outside(int axis) const {
  std::size_t product = 1;
  for (int i = 0, end = find(axis); i < end; ++i) product *= static_cast<std::size_t>((*this)[i]);
  return product;
}

std::string TensorShape::to_string() const {
  std::string words = "(";
  for (const std::int64_t length : lengths_) words += text(words.size() > 1 ? ", " : "", length);
  return words + (lengths_.size() == 1 ? ",)" : ")");
}

}  // namespace lockstep
