// SPDX-License-Identifier: Apache-2.0
// Declares DeviceVector, an owner of GPU memory that collectives accept like any other range.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <type_traits>
#include <utility>

#include "collectives/contiguous.hpp"

namespace lockstep {

namespace gpu {

// Allocates GPU memory, which is freed with the last owner. Its contents are undefined. Returns null for 0 bytes.
// Throws Error device if there is no such GPU, out_of_memory if it has too little memory, usage if the size overflows.
std::shared_ptr<std::byte> allocate(int device, std::size_t count, std::size_t element_bytes);

// Copies contiguous memory to or from the memory of a GPU, and waits for the end. 0 bytes need no GPU.
void copy(int device, std::byte* to, const std::byte* from, std::size_t bytes);

// Throws Error usage for a copy between ranges of different length, in elements.
[[noreturn]] void refuse_count(std::size_t given, std::size_t here);

}  // namespace gpu

// Owns elements in a GPU's memory. Collectives accept it like any other range, but the host cannot read the elements.
// It can be moved, not copied.
template <class T>
class DeviceVector {
  static_assert(std::is_trivially_copyable_v<T>, "lockstep: a GPU's memory holds trivially copyable elements");

 public:
  DeviceVector() = default;
  // Allocates `count` elements with undefined values. Throws as gpu::allocate() does.
  explicit DeviceVector(std::size_t count, int device = 0)
      : memory_(gpu::allocate(device, count, sizeof(T))), count_(count), device_(device) {}
  // Allocates as many elements as a range has, and copies them.
  template <detail::ContiguousRange R>
  requires std::is_same_v<std::remove_const_t<detail::ElementIn<const R>>, T>
  explicit DeviceVector(const R& host, int device = 0) : DeviceVector(detail::size_of(host), device) {
    copy_from(host);
  }
  DeviceVector(DeviceVector&& other) noexcept
      : memory_(std::move(other.memory_)), count_(std::exchange(other.count_, 0)), device_(other.device_) {}
  DeviceVector& operator=(DeviceVector&& other) noexcept {
    memory_ = std::move(other.memory_);
    count_ = std::exchange(other.count_, 0);
    device_ = other.device_;
    return *this;
  }
  DeviceVector(const DeviceVector&) = delete;
  DeviceVector& operator=(const DeviceVector&) = delete;
  ~DeviceVector() = default;

  // Return the address on the GPU and the size in elements. The host must not read or write through the pointers.
  T* data() const { return reinterpret_cast<T*>(memory_.get()); }
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }
  std::span<T> span() const { return {data(), count_}; }
  int device() const { return device_; }

  // Copies as many elements from the host or from a GPU, and waits for the end. Throws Error usage if the sizes differ.
  template <detail::ContiguousRange R>
  void copy_from(const R& other) {
    gpu::copy(device_, reinterpret_cast<std::byte*>(data()), as_bytes_of(other), bytes_of(detail::size_of(other)));
  }
  // Copies all elements to the host or to a GPU in the same way.
  template <class R>
  void copy_to(R&& other) const {
    gpu::copy(device_, reinterpret_cast<std::byte*>(detail::data_of(other)), reinterpret_cast<const std::byte*>(data()),
              bytes_of(detail::size_of(other)));
  }

 private:
  template <class R>
  static const std::byte* as_bytes_of(const R& range) {
    static_assert(std::is_same_v<std::remove_const_t<detail::ElementIn<const R>>, T>,
                  "lockstep: nothing is converted in a copy");
    return reinterpret_cast<const std::byte*>(detail::data_of(range));
  }
  std::size_t bytes_of(std::size_t count) const {
    if (count != count_) gpu::refuse_count(count, count_);
    return count * sizeof(T);
  }

  std::shared_ptr<std::byte> memory_;
  std::size_t count_ = 0;
  int device_ = 0;
};

}  // namespace lockstep
