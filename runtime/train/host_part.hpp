// SPDX-License-Identifier: Apache-2.0
// Lets the host change a part of a variable, wherever it is.
#pragma once

#include <span>
#include <vector>

#include "runtime/any_variable.hpp"

namespace lockstep::train {

// Refers to the part's memory. If that is a GPU's, it is a copy, which put_back() copies to the GPU.
template <class T>
class HostPart {
 public:
  HostPart(const AnyVariable& variable, std::size_t part)
      : memory_(variable.part(part)), gpu_(variable.layout().parts[part].gpu) {
    if (gpu_ == gpu::MemoryLocation::host) return;
    copy_.resize(memory_.count);
    gpu::copy(gpu_, bytes_of(copy_.data()), bytes_of(memory_.data), memory_.bytes());
  }
  std::span<T> span() {
    return {gpu_ == gpu::MemoryLocation::host ? static_cast<T*>(memory_.data) : copy_.data(), memory_.count};
  }
  void put_back() {
    if (gpu_ != gpu::MemoryLocation::host)
      gpu::copy(gpu_, bytes_of(memory_.data), bytes_of(copy_.data()), memory_.bytes());
  }

 private:
  static std::byte* bytes_of(void* data) { return static_cast<std::byte*>(data); }
  TensorView memory_;
  int gpu_;
  std::vector<T> copy_;
};

}  // namespace lockstep::train
