// SPDX-License-Identifier: Apache-2.0
// Makes the path by NCCL, levels and streams. Builds without CUDA and without tests have no_device_path.cpp instead.
#include "collectives/communicator/gpu_path.hpp"

namespace lockstep::detail {

bool has_device_path(const CommunicatorOptions& options) { return options.nccl && nccl::library() != nullptr; }

std::unique_ptr<DevicePath> make_device_path(CommunicatorMember& member, CommunicatorFactory& factory) {
  return std::make_unique<GpuPath>(member, factory);
}

}  // namespace lockstep::detail
