// SPDX-License-Identifier: Apache-2.0
// Holds elements with a shape, as a value that replicas compute with, reduce and gather. A scalar is a tensor too.
// Collectives take it like any range. It offers no arithmetic. Pure.
#pragma once

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <span>
#include <utility>
#include <valarray>
#include <vector>

#include "collectives/types.hpp"
#include "runtime/values/print.hpp"
#include "runtime/values/tensor_shape.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// Owns its elements, in row-major order. A default-constructed tensor is a scalar 0.
template <class T>
class Tensor {
 public:
  using value_type = T;

  Tensor() : Tensor(T{}) {}
  Tensor(T scalar) : values_(scalar, 1) {}  // NOLINT(google-explicit-constructor): a scalar is a tensor without axes
  explicit Tensor(TensorShape shape, T fill = T{}) : shape_(std::move(shape)), values_(fill, shape_.count()) {}
  // Copies the values. Throws Error usage if their number does not fit the shape.
  Tensor(TensorShape shape, std::span<const T> values)
      : shape_(std::move(shape)), values_(values.data(), values.size()) {
    if (values.size() != shape_.count())
      throw Error(Code::usage, text(values.size(), " values for a tensor of shape ", shape_.to_string()),
                  text("give ", shape_.count()));
  }
  Tensor(TensorShape shape, std::initializer_list<T> values)
      : Tensor(std::move(shape), std::span<const T>(values.begin(), values.size())) {}

  const TensorShape& shape() const { return shape_; }
  std::size_t size() const { return values_.size(); }
  // Returns null for a tensor without elements.
  T* data() { return size() == 0 ? nullptr : &values_[0]; }
  const T* data() const { return size() == 0 ? nullptr : &values_[0]; }
  T* begin() { return data(); }
  T* end() { return data() + size(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  std::span<T> span() { return {data(), size()}; }
  std::span<const T> span() const { return {data(), size()}; }
  // Return the element at a position in memory. The last axis varies fastest.
  T& operator[](std::size_t i) { return values_[i]; }
  const T& operator[](std::size_t i) const { return values_[i]; }
  // Returns the only element. Throws Error usage for another number of elements.
  T item() const {
    if (size() != 1)
      throw Error(Code::usage, text("item() of a tensor of shape ", shape_.to_string()), "it is for one element");
    return values_[0];
  }
  bool operator==(const Tensor& other) const {
    return shape_ == other.shape_ && std::equal(begin(), end(), other.begin());
  }

 private:
  TensorShape shape_;
  std::valarray<T> values_;  // A vector would pack bool.
};

// Returns the values as a tensor of one axis.
template <class T>
Tensor<T> row(const std::vector<T>& values) {
  return Tensor<T>({static_cast<std::int64_t>(values.size())}, std::span<const T>(values));
}
template <class T>
Tensor<T> row(std::initializer_list<T> values) {
  return Tensor<T>({static_cast<std::int64_t>(values.size())}, values);
}

// Returns the text that Python prints: "1.0" for a scalar, "[1., 2.]".
template <class T>
std::string to_string(const Tensor<T>& tensor) {
  if (tensor.shape().rank() == 0) return detail::scalar_words(tensor[0]);
  return detail::array_words(tensor.shape(), [&](std::size_t i) { return detail::element_words(tensor[i]); });
}
template <class T>
std::ostream& operator<<(std::ostream& out, const Tensor<T>& tensor) {
  return out << to_string(tensor);
}

// Concatenates tensors along an axis. Their other lengths must be equal. Throws Error usage for no tensors.
template <class T>
Tensor<T> join(const std::vector<Tensor<T>>& parts, int axis) {
  if (parts.empty()) throw Error(Code::usage, "nothing to join", "give one tensor at least");
  std::int64_t length = 0;
  for (const Tensor<T>& part : parts) length += part.shape()[axis];
  Tensor<T> whole(parts.front().shape().with(axis, length));
  const std::size_t stride = static_cast<std::size_t>(length) * whole.shape().inside(axis);
  if (whole.size() == 0) return whole;
  std::size_t at = 0;
  for (const Tensor<T>& part : parts) {
    const std::size_t each = static_cast<std::size_t>(part.shape()[axis]) * part.shape().inside(axis);
    for (std::size_t i = 0, end = part.shape().outside(axis); i < end; ++i)
      std::copy_n(part.begin() + i * each, each, whole.begin() + i * stride + at);
    at += each;
  }
  return whole;
}

}  // namespace lockstep
