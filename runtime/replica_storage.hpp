// SPDX-License-Identifier: Apache-2.0
// Holds a replica's part of a variable, in the memory of its GPU if it has one. The host then works on copies.
#pragma once

#include <span>
#include <type_traits>
#include <utility>

#include "collectives/gpu/memory.hpp"
#include "collectives/gpu/memory_location.hpp"
#include "runtime/values/tensor.hpp"

namespace lockstep::detail {

// Owns the part's memory.
template <class T>
class ReplicaStorage {
 public:
  // Copies `value` to GPU number `gpu`, or to the host's memory for gpu::MemoryLocation::host.
  ReplicaStorage(const Tensor<T>& value, int gpu) : shape_(value.shape()) {
    if (gpu == gpu::MemoryLocation::host)
      host_part_ = value;
    else
      device_part_ = DeviceVector<T>(value.span(), gpu);
    is_here_ = gpu == gpu::MemoryLocation::host;
  }

  // Returns the shape of the value.
  const TensorShape& shape() const { return shape_; }
  // True if the part is in the host's memory.
  bool is_here() const { return is_here_; }
  // Returns the memory of the part, on the host or on the GPU.
  std::span<T> span() { return is_here_ ? host_part_.span() : device_part_.span(); }
  // Returns a copy on the host.
  Tensor<T> value() const {
    if (is_here_) return host_part_;
    Tensor<T> copy(shape_);
    device_part_.copy_to(copy.span());
    return copy;
  }
  // Returns a copy in the same memory, on the host or on the GPU.
  ReplicaStorage copy() const {
    ReplicaStorage other;
    other.shape_ = shape_;
    other.is_here_ = is_here_;
    other.host_part_ = host_part_;
    if (!is_here_) other.device_part_ = DeviceVector<T>(device_part_.span(), device_part_.device());
    return other;
  }
  // Replaces the elements by those of a copy.
  void assign(const ReplicaStorage& other) {
    if (is_here_)
      copy_elements(other.host_part_.data(), other.host_part_.size(), host_part_.data());
    else
      device_part_.copy_from(other.device_part_.span());
  }
  // Replaces the elements. The number of elements must be equal.
  void assign(const Tensor<T>& value) {
    if (is_here_)
      copy_elements(value.data(), value.size(), host_part_.data());
    else
      device_part_.copy_from(value.span());
  }
  // Changes the part by `function(tensor)`, which runs on the host.
  template <class F>
  void change(F&& function) {
    if (is_here_) return function(host_part_);
    Tensor<T> copy = value();
    function(copy);
    device_part_.copy_from(std::as_const(copy).span());
  }

 private:
  ReplicaStorage() = default;

  TensorShape shape_;
  bool is_here_ = true;
  Tensor<T> host_part_;
  DeviceVector<T> device_part_;
};

}  // namespace lockstep::detail
