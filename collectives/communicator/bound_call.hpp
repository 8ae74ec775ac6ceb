// SPDX-License-Identifier: Apache-2.0
// Describes a call that is checked and planned.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator/staging.hpp"
#include "collectives/node/call.hpp"

namespace lockstep::detail {

struct DeviceCall;

// Holds a call that is checked and planned, with everything that a repeated start needs. It owns its staging memory,
// but not the caller's buffers.
struct BoundCall {
  Call call;
  std::vector<StagingCopy> in;    // Run before the call.
  std::vector<StagingCopy> back;  // Run after it.
  StagingBuffer staged;
  std::optional<gpu::Stream> stream = {};
  // True if the members of a node keep the stream's order themselves, so that the host need not wait for the stream.
  bool keeps_order = false;
  // True if tensors that are one call are packed and unpacked in a GPU's memory.
  bool packs_on_gpu = false;
  // Holds the place of a plan's buffer when the plan was made, on a GPU or in symmetric memory. A later start compares
  // it, to find freed memory.
  struct BufferLocation {
    const void* data = nullptr;  // Null means that the buffer cannot be checked.
    gpu::MemoryLocation where;
    // Is not 0 once this member has freed symmetric memory; null for a buffer on a GPU.
    std::shared_ptr<const std::atomic<std::uint32_t>> freed = {};
  };
  std::array<BufferLocation, 2> locations = {};  // Belong to input and output.
  // Describes the call for GPUs; null if they cannot run it. Otherwise the host's call is made only when the members
  // have decided against GPUs.
  std::shared_ptr<DeviceCall> gpus = {};

  // True if the host runs the call on the caller's buffers, with nothing to do before it or after it.
  bool is_direct() const { return gpus == nullptr && !stream && staged == nullptr && in.empty() && back.empty(); }

  // Return the name of the chosen algorithm, and the reason for the choice, as texts for people.
  const std::string& algorithm() const;
  const std::string& why() const;
};

}  // namespace lockstep::detail
