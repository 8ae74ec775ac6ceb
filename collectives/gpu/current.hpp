// SPDX-License-Identifier: Apache-2.0
// The calling thread's current GPU, changed for a while; and errors of the CUDA runtime as ours.
#pragma once

#include <cuda_runtime_api.h>

#include <string_view>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::gpu {

[[noreturn]] void refuse(cudaError_t error, std::string_view what);

inline void check(cudaError_t error, std::string_view what) {
  if (error != cudaSuccess) [[unlikely]]
    refuse(error, what);
}

class Current {
 public:
  explicit Current(int device) {
    check(cudaGetDevice(&before_), "asking for the current GPU");
    if (device != before_) check(cudaSetDevice(device), text("using GPU ", device));
    changed_ = device != before_;
  }
  ~Current() {
    if (changed_) cudaSetDevice(before_);
  }
  Current(const Current&) = delete;
  Current& operator=(const Current&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

}  // namespace lockstep::gpu
