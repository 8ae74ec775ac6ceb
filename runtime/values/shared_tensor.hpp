// SPDX-License-Identifier: Apache-2.0
// Refers to a tensor that does not change and that several owners keep. Its memory may be shared with other processes,
// or be a file's. Pure.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "runtime/values/tensor.hpp"

namespace lockstep {

// Keeps the memory of a tensor. Copies are cheap and refer to the same elements; the last one frees them. It is a
// source of data sets: data::from_tensor_slices() takes it without a copy.
template <class T>
class SharedTensor {
 public:
  using value_type = T;

  // Takes a tensor.
  SharedTensor() : SharedTensor(Tensor<T>()) {}
  explicit SharedTensor(Tensor<T> tensor) : shape_(tensor.shape()) {
    const auto kept = std::make_shared<const Tensor<T>>(std::move(tensor));
    elements_ = std::shared_ptr<const T>(kept, kept->data());
  }
  // Takes memory that holds the elements of the shape in row-major order.
  SharedTensor(TensorShape shape, std::shared_ptr<const T> elements)
      : shape_(std::move(shape)), elements_(std::move(elements)) {}

  const TensorShape& shape() const { return shape_; }
  std::size_t size() const { return shape_.count(); }
  const T* data() const { return elements_.get(); }
  const T* begin() const { return data(); }
  const T* end() const { return data() + size(); }
  const T& operator[](std::size_t i) const { return data()[i]; }
  std::span<const T> span() const { return {data(), size()}; }
  // Return a reference to the tensor, and to some of its rows. They hold as long as a copy of this object does.
  TensorSpan<const T> tensor() const { return {shape_, data()}; }
  TensorSpan<const T> rows(std::int64_t first, std::int64_t number) const { return tensor().rows(first, number); }
  // Returns the memory, for another owner.
  const std::shared_ptr<const T>& elements() const { return elements_; }

 private:
  TensorShape shape_;
  std::shared_ptr<const T> elements_;
};

}  // namespace lockstep
