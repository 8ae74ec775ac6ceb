// SPDX-License-Identifier: Apache-2.0
// Memory of a GPU that is freed with its owner.
#pragma once

#include <cstddef>
#include <memory>
#include <ranges>
#include <span>
#include <type_traits>
#include <utility>

#include "collectives/gpu/device_backend.hpp"

namespace lockstep {

namespace gpu {

// Freed with the last owner. Throws Error device where there is no such GPU, out_of_memory where it has not as much.
std::shared_ptr<std::byte> allocate(int device, std::size_t count, std::size_t element_bytes);

// So many bytes; throws what allocate() throws without asking the GPU.
std::size_t bytes_to_allocate(int device, std::size_t count, std::size_t element_bytes);

// Of contiguous memory, to a GPU's or from it; done when it returns.
void copy(int device, std::byte* to, const std::byte* from, std::size_t bytes);

[[noreturn]] void refuse_count(std::size_t given, std::size_t here);

}  // namespace gpu

// Elements in a GPU's memory: a range that collectives take like any other, and that the host cannot look into.
template <class T>
class DeviceVector {
  static_assert(std::is_trivially_copyable_v<T>, "lockstep: a GPU's memory holds trivially copyable elements");

 public:
  DeviceVector() = default;
  // What is in them is not said.
  explicit DeviceVector(std::size_t count, int device = 0)
      : memory_(gpu::allocate(device, count, sizeof(T))), count_(count), device_(device) {}
  // Memory that is there already.
  DeviceVector(std::shared_ptr<std::byte> memory, std::size_t count, int device)
      : memory_(std::move(memory)), count_(count), device_(device) {}
  // A copy of what the host has.
  template <std::ranges::contiguous_range R>
  requires std::is_same_v<std::ranges::range_value_t<R>, T>
  explicit DeviceVector(const R& host, int device = 0) : DeviceVector(std::ranges::size(host), device) {
    copy_from(std::span<const T>(host));
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

  T* data() const { return reinterpret_cast<T*>(memory_.get()); }
  std::size_t size() const { return count_; }
  bool empty() const { return count_ == 0; }
  T* begin() const { return data(); }
  T* end() const { return data() + count_; }
  std::span<T> span() const { return {data(), count_}; }
  int device() const { return device_; }

  // Of as many elements: from the host and to it, or to and from another GPU's.
  template <std::ranges::contiguous_range R>
  void copy_from(const R& other) {
    gpu::copy(device_, reinterpret_cast<std::byte*>(data()), as_bytes_of(other), bytes_of(std::ranges::size(other)));
  }
  template <std::ranges::contiguous_range R>
  void copy_to(R&& other) const {
    gpu::copy(device_, reinterpret_cast<std::byte*>(std::ranges::data(other)),
              reinterpret_cast<const std::byte*>(data()), bytes_of(std::ranges::size(other)));
  }

 private:
  template <class R>
  static const std::byte* as_bytes_of(const R& range) {
    static_assert(std::is_same_v<std::ranges::range_value_t<R>, T>, "lockstep: nothing is converted in a copy");
    return reinterpret_cast<const std::byte*>(std::ranges::data(range));
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
