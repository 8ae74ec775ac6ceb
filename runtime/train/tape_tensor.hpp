// SPDX-License-Identifier: Apache-2.0
// Holds a tensor with which models compute. A tape can follow it through the ops.
#pragma once

#include <cstdint>
#include <ostream>
#include <span>
#include <string>
#include <type_traits>
#include <utility>

#include "runtime/any_tensor.hpp"
#include "runtime/variable.hpp"

namespace lockstep::train {

// Is a value: copies share the elements, which never change, and are the same tensor for a tape. Each op returns a new
// one. A variable becomes one by reading. It then refers to the replica's part until the variable changes, so a program
// applies gradients after the backward pass.
class TapeTensor {
 public:
  // Makes a scalar 0.
  TapeTensor() : TapeTensor(0.F) {}
  // Take constants, which no tape follows unless it is told to watch them.
  TapeTensor(AnyTensor tensor);  // NOLINT(google-explicit-constructor): a tensor is one
  template <class T>
  TapeTensor(Tensor<T> tensor)  // NOLINT(google-explicit-constructor)
      : TapeTensor(AnyTensor(std::move(tensor))) {}
  TapeTensor(float number)  // NOLINT(google-explicit-constructor)
      : TapeTensor(Tensor<float>(number)) {}
  // Reads a variable. Tapes of this thread follow it if it is trainable.
  template <class T>
  TapeTensor(const Variable<T>& variable)  // NOLINT(google-explicit-constructor)
      : TapeTensor(AnyVariable(variable)) {}
  TapeTensor(const AnyVariable& variable);  // NOLINT(google-explicit-constructor)

  const AnyTensor& tensor() const { return tensor_; }
  const TensorShape& shape() const { return tensor_.shape(); }
  DataType type() const { return tensor_.type(); }
  std::size_t size() const { return tensor_.size(); }
  // Returns the elements. Throws Error usage for another type.
  template <class T>
  std::span<const T> span() const {
    return tensor_.span<T>();
  }
  // Returns a copy of the elements as a tensor.
  template <class T>
  Tensor<T> to() const {
    return tensor_.to<T>();
  }
  // Returns the only element of a tensor of f32. Throws Error usage for another number of elements.
  float item() const { return tensor_.to<float>().item(); }
  // Identifies the tensor for tapes: copies have the same number.
  std::uint64_t id() const { return id_; }

 private:
  AnyTensor tensor_;
  std::uint64_t id_;
};

std::string to_string(const TapeTensor& tensor);
std::ostream& operator<<(std::ostream& out, const TapeTensor& tensor);

}  // namespace lockstep::train
