// SPDX-License-Identifier: Apache-2.0
// Stands in for cuda_backend.cpp in builds without CUDA.
#include "collectives/gpu/device_backend.hpp"

namespace lockstep::gpu {

std::unique_ptr<DeviceBackend> make_backend(std::string& why_none) {
  why_none = "this build has no CUDA: build it where the CUDA Toolkit is, with -Dcuda=enabled";
  return nullptr;
}

}  // namespace lockstep::gpu
