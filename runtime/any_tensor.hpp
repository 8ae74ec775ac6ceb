// SPDX-License-Identifier: Apache-2.0
// Holds a tensor whose element type is known at run time only, in the memory of the host or of a GPU. Data sets,
// checkpoints and models pass tensors of all types through it.
#pragma once

#include <cstddef>
#include <memory>
#include <ostream>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "collectives/gpu/memory.hpp"
#include "collectives/gpu/memory_location.hpp"
#include "runtime/values/tensor.hpp"
#include "runtime/values/tensor_spec.hpp"
#include "runtime/values/tensor_view.hpp"

namespace lockstep {

// Shares its memory with its copies, or refers to memory of another owner. Replicas combine and broadcast it like a
// tensor.
class AnyTensor {
 public:
  // Takes a tensor over, in the host's memory.
  template <class T>
  AnyTensor(Tensor<T> tensor)  // NOLINT(google-explicit-constructor): a tensor is one
      : AnyTensor(tensor.shape(), data_type_of<T>, {}) {
    const auto owner = std::make_shared<Tensor<T>>(std::move(tensor));
    memory_ = {owner, as_bytes(owner->data())};
  }
  // Takes elements in a GPU's memory over. Throws Error usage if their number does not fit the shape.
  template <class T>
  AnyTensor(DeviceVector<T> elements, TensorShape shape)
      : AnyTensor(std::move(shape), data_type_of<T>, {elements.device()}) {
    check_count(elements.size());
    const auto owner = std::make_shared<DeviceVector<T>>(std::move(elements));
    memory_ = {owner, as_bytes(owner->data())};
  }
  // Returns a tensor in the host's memory that `memory` owns. The memory must hold all elements.
  static AnyTensor in_memory(std::shared_ptr<std::byte> memory, DataType type, TensorShape shape);
  // Returns a tensor of zeros in the host's memory.
  static AnyTensor zeros(DataType type, TensorShape shape);
  // Refer to the memory of a tensor, of rows, or of a GPU's elements, which must outlive all copies of the result.
  template <class T>
  static AnyTensor view_of(Tensor<T>& tensor) {
    return AnyTensor(tensor.shape(), data_type_of<T>, {}, tensor.data());
  }
  template <class T>
  static AnyTensor view_of(const TensorSpan<T>& rows) {
    static_assert(!std::is_const_v<T>, "lockstep: an AnyTensor can be written, so it refers to no constant tensor");
    return AnyTensor(rows.shape(), data_type_of<T>, {}, rows.data());
  }
  template <class T>
  static AnyTensor view_of(DeviceVector<T>& elements, TensorShape shape) {
    AnyTensor view(std::move(shape), data_type_of<T>, {elements.device()}, elements.data());
    view.check_count(elements.size());
    return view;
  }

  // Return the type of the elements, the shape, the number of elements, and the place of the memory.
  DataType type() const { return type_; }
  const TensorShape& shape() const { return shape_; }
  std::size_t size() const { return shape_.count(); }
  gpu::MemoryLocation location() const { return location_; }
  // Returns the memory without its static type, for functions that are no templates.
  TensorView view() const { return {memory_.get(), type_, size()}; }

  // Return the elements without a copy, in the host's or in a GPU's memory. Throw Error usage for another type, and for
  // memory elsewhere.
  template <class T>
  std::span<T> span() const {
    return typed<T>("span", true);
  }
  template <class T>
  std::span<T> span_on_gpu() const {
    return typed<T>("span_on_gpu", false);
  }
  // Returns a copy as a tensor. Throws Error usage for another type.
  template <class T>
  Tensor<T> to() const {
    check_type(data_type_of<T>, "to");
    Tensor<T> result(shape_);
    copy_to(as_bytes(result.data()));
    return result;
  }
  // Returns these elements in another shape. The result shares this memory. Throws Error usage for another number.
  AnyTensor reshaped(TensorShape shape) const;
  // Returns some rows, which share this memory. Throws Error usage for rows that are not there.
  AnyTensor rows(std::int64_t first, std::int64_t number) const;
  // Returns a copy with memory of its own, in that place.
  AnyTensor copy_at(gpu::MemoryLocation location) const;
  // Copies the elements of a tensor of the same type and shape, wherever it is. Throws Error usage for another one.
  void assign(const AnyTensor& other) const;

 private:
  AnyTensor(TensorShape shape, DataType type, gpu::MemoryLocation location, void* memory = nullptr);
  template <class T>
  static std::byte* as_bytes(T* data) {
    return reinterpret_cast<std::byte*>(data);
  }
  template <class T>
  std::span<T> typed(std::string_view call, bool for_host) const {
    check_type(data_type_of<T>, call);
    check_place(for_host, call);
    return {reinterpret_cast<T*>(memory_.get()), size()};
  }
  void check_count(std::size_t elements) const;
  void check_type(DataType wanted, std::string_view call) const;
  void check_place(bool for_host, std::string_view call) const;
  void copy_to(std::byte* host) const;

  TensorShape shape_;
  DataType type_;
  gpu::MemoryLocation location_;
  std::shared_ptr<std::byte> memory_;  // Has no owner in a view.
};

// Describes a tensor, under a name.
inline TensorSpec spec_of(const AnyTensor& tensor, std::string name = {}) {
  return {tensor.shape().lengths(), tensor.type(), std::move(name)};
}
// Return and write TensorFlow's text of the tensor. A GPU's memory is copied first.
std::string to_string(const AnyTensor& tensor);
std::ostream& operator<<(std::ostream& out, const AnyTensor& tensor);

}  // namespace lockstep
