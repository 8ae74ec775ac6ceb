// SPDX-License-Identifier: Apache-2.0
// Describes a call that NCCL or levels of GPUs may run.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/communicator/device_path.hpp"
#include "collectives/nccl/nccl_communicator.hpp"

namespace lockstep::detail {

// Holds a call for NCCL, which runs if every member's data is in a GPU's memory. Members find that out by a vote when
// the call first starts.
struct GpuCall final : DeviceCall {
  enum class Path : std::uint8_t { unknown, nccl, levels, host };
  static constexpr int anywhere = -2;

  std::vector<nccl::NcclCall> steps;
  // Plans the call in which members vote on this one.
  std::shared_ptr<const Plan> vote;
  // Names the GPU that holds all of this member's data, or the host if no single GPU does. `anywhere` means no data.
  int device = anywhere;
  // Names the GPU of the program's stream. The default stream is that of the GPU with the data.
  int stream_device = anywhere;
  Path path = Path::unknown;

  // Sets the path, and its texts for people.
  void choose(Path chosen);
};

// Return the GPU path's own form of a call.
inline GpuCall& gpu_call_of(DeviceCall& call) { return static_cast<GpuCall&>(call); }
inline const GpuCall& gpu_call_of(const DeviceCall& call) { return static_cast<const GpuCall&>(call); }

}  // namespace lockstep::detail
