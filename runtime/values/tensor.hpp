// SPDX-License-Identifier: Apache-2.0
// Holds elements with a shape, as a value that replicas compute with, reduce and gather. A scalar is a tensor too.
// Collectives take it like any range. runtime/values/tensor_arithmetic.hpp calculates with it. Pure.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <ostream>
#include <span>
#include <utility>
#include <vector>

#include "collectives/types.hpp"
#include "runtime/values/print.hpp"
#include "runtime/values/tensor_shape.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

namespace detail {

// Copies elements. The ranges must not overlap.
template <class T>
void copy_elements(const T* from, std::size_t count, T* to) {
  static_assert(std::is_trivially_copyable_v<T>, "lockstep: a tensor's elements are numbers");
  if (count > 0) std::memcpy(to, from, count * sizeof(T));
}

// Owns a fixed number of elements. A std::vector would pack bool.
template <class T>
class Elements {
 public:
  Elements(std::size_t size, T fill) : size_(size), data_(new T[size]) {
    for (std::size_t i = 0; i < size; ++i) data_[i] = fill;
  }
  Elements(const T* from, std::size_t size) : size_(size), data_(new T[size]) { copy_elements(from, size, data()); }
  Elements(const Elements& other) : Elements(other.data(), other.size()) {}
  Elements(Elements&& other) noexcept : size_(std::exchange(other.size_, 0)), data_(std::move(other.data_)) {}
  // Keeps the memory if the number stays the same.
  Elements& operator=(const Elements& other) {
    if (size_ == other.size_)
      copy_elements(other.data(), size_, data());
    else
      *this = Elements(other);
    return *this;
  }
  Elements& operator=(Elements&& other) noexcept {
    size_ = std::exchange(other.size_, 0);
    data_ = std::move(other.data_);
    return *this;
  }
  ~Elements() = default;
  // Takes the elements in `memory`, and gives its own.
  void exchange(std::size_t size, std::unique_ptr<T[]>& memory) {
    size_ = size;
    data_.swap(memory);
  }
  std::size_t size() const { return size_; }
  T* data() const { return size_ == 0 ? nullptr : data_.get(); }

 private:
  std::size_t size_;
  std::unique_ptr<T[]> data_;
};

}  // namespace detail

template <class T>
class Tensor;

// Refers to a tensor, or to rows of one, without a copy. Collectives take it like any range. The tensor must outlive
// it, and must keep its memory: an assignment of a tensor of another size ends the reference. T is const for reading.
template <class T>
class TensorSpan {
 public:
  using value_type = std::remove_const_t<T>;

  // Refers to memory that holds a tensor of the shape.
  TensorSpan(TensorShape shape, T* data) : shape_(std::move(shape)), data_(data) {}
  const TensorShape& shape() const { return shape_; }
  std::size_t size() const { return shape_.count(); }
  T* data() const { return data_; }
  T* begin() const { return data_; }
  T* end() const { return data_ + size(); }
  std::span<T> span() const { return {data_, size()}; }
  T& operator[](std::size_t i) const { return data_[i]; }
  // Returns some of these rows.
  TensorSpan rows(std::int64_t first, std::int64_t number) const {
    TensorShape part = shape_.rows(first, number);
    return {std::move(part), size() == 0 ? data_ : data_ + static_cast<std::size_t>(first) * shape_.inside(0)};
  }
  // Returns a tensor of its own.
  Tensor<value_type> copy() const { return Tensor<value_type>(shape_, std::span<const value_type>(data_, size())); }

 private:
  TensorShape shape_;
  T* data_;
};

// Owns its elements, in row-major order. A default-constructed tensor is a scalar 0.
template <class T>
class Tensor {
 public:
  using value_type = T;

  Tensor() : Tensor(T{}) {}
  Tensor(T scalar) : values_(1, scalar) {}  // NOLINT(google-explicit-constructor): a scalar is a tensor without axes
  // Makes a tensor with all elements equal to `fill`.
  explicit Tensor(TensorShape shape, T fill = T{}) : shape_(std::move(shape)), values_(shape_.count(), fill) {}
  // Copies the values. Throws Error usage if their number does not fit the shape.
  Tensor(TensorShape shape, std::span<const T> values)
      : shape_(std::move(shape)), values_(values.data(), values.size()) {
    if (values.size() != shape_.count())
      throw Error(Code::usage, text(values.size(), " values for a tensor of shape ", shape_.to_string()),
                  text("give ", shape_.count()));
  }
  Tensor(TensorShape shape, std::initializer_list<T> values)
      : Tensor(std::move(shape), std::span<const T>(values.begin(), values.size())) {}

  // Return the shape and the number of elements.
  const TensorShape& shape() const { return shape_; }
  std::size_t size() const { return values_.size(); }
  // Returns null for a tensor without elements.
  T* data() { return values_.data(); }
  const T* data() const { return values_.data(); }
  T* begin() { return data(); }
  T* end() { return data() + size(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  std::span<T> span() { return {data(), size()}; }
  std::span<const T> span() const { return {data(), size()}; }
  // Return the element at a position in memory. The last axis varies fastest.
  T& operator[](std::size_t i) { return values_.data()[i]; }
  const T& operator[](std::size_t i) const { return values_.data()[i]; }
  // Return `number` rows from row `first` on, without a copy. Throw Error usage for rows that are not there.
  TensorSpan<T> rows(std::int64_t first, std::int64_t number) & {
    return TensorSpan<T>(shape_, data()).rows(first, number);
  }
  TensorSpan<const T> rows(std::int64_t first, std::int64_t number) const& {
    return TensorSpan<const T>(shape_, data()).rows(first, number);
  }
  // Is deleted, because the rows would refer to a tensor that is gone.
  void rows(std::int64_t first, std::int64_t number) && = delete;
  // Returns the only element. Throws Error usage for another number of elements.
  T item() const {
    if (size() != 1)
      throw Error(Code::usage, text("item() of a tensor of shape ", shape_.to_string()), "it is for one element");
    return *values_.data();
  }
  // Copies elements of a shape. It keeps its memory if their number stays the same.
  void assign(const TensorShape& shape, const T* from) {
    if (size() != shape.count())
      values_ = detail::Elements<T>(from, shape.count());
    else
      detail::copy_elements(from, shape.count(), values_.data());
    if (shape_ != shape) shape_ = shape;
  }
  // Takes memory with the elements of a shape, and gives its own, which has size() elements.
  void exchange_memory(const TensorShape& shape, std::unique_ptr<T[]>& memory) {
    values_.exchange(shape.count(), memory);
    if (shape_ != shape) shape_ = shape;
  }
  bool operator==(const Tensor& other) const {
    if (shape_ != other.shape_) return false;
    for (std::size_t i = 0; i < size(); ++i) {
      if (!((*this)[i] == other[i])) return false;
    }
    return true;
  }

 private:
  TensorShape shape_;
  detail::Elements<T> values_;
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

// Returns the tensor with another element type. Each element is converted as by static_cast.
template <class To, class From>
Tensor<To> cast(const Tensor<From>& tensor) {
  Tensor<To> result(tensor.shape());
  for (std::size_t i = 0; i < tensor.size(); ++i) result[i] = static_cast<To>(tensor[i]);
  return result;
}

// Returns the text of the elements alone, as NumPy prints them: "1.0" for a scalar, "[1., 2.]".
template <class T>
std::string to_string(const Tensor<T>& tensor) {
  if (tensor.shape().rank() == 0) return detail::scalar_words(tensor[0]);
  return detail::array_words(tensor.shape(), [&](std::size_t i) { return detail::element_words(tensor[i]); });
}
// Prints TensorFlow's text: "tf.Tensor(0.2875447, shape=(), dtype=float32)".
template <class T>
std::ostream& operator<<(std::ostream& out, const Tensor<T>& tensor) {
  return out << detail::tensor_words(tensor.shape(), data_type_of<T>, [&](std::size_t i) {
           return tensor.shape().rank() == 0 ? detail::scalar_words(tensor[i]) : detail::element_words(tensor[i]);
         });
}

// Returns TensorFlow's text of a tensor inside of a list: "<tf.Tensor: shape=(1,), dtype=int64, numpy=array([0])>".
template <class T>
std::string to_list_text(const Tensor<T>& tensor) {
  constexpr DataType type = data_type_of<T>;
  constexpr bool is_default = type == DataType::i64 || type == DataType::f64 || type == DataType::boolean;
  const std::string array_type = is_default ? std::string() : text(", dtype=", detail::numpy_name(type));
  const bool is_scalar = tensor.shape().rank() == 0;
  const std::string value = is_scalar ? to_string(tensor) : text("array(", to_string(tensor), array_type, ')');
  return text("<tf.Tensor: shape=", tensor.shape().to_string(), ", dtype=", detail::numpy_name(type), ", numpy=", value,
              '>');
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
      detail::copy_elements(part.begin() + i * each, each, whole.begin() + i * stride + at);
    at += each;
  }
  return whole;
}

}  // namespace lockstep
