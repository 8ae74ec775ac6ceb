// SPDX-License-Identifier: Apache-2.0
// Holds types that only the communicator_core*.cpp files share: calls under way, and exclusive use of a communicator
// by one thread.
#pragma once

#include "collectives/communicator/communicator_core.hpp"
#include "collectives/communicator/exclusive_use.hpp"
#include "collectives/communicator/joint_setup.hpp"
#include "collectives/engine/engine.hpp"
#include "collectives/engine/real_world.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

// Describes a call for NCCL, which runs if every member's data is in a GPU's memory. Members find that out by a vote
// when the call first starts.
struct DeviceCall {
  enum class DevicePath : std::uint8_t { unknown, nccl, levels, host };
  static constexpr int anywhere = -2;

  std::vector<nccl::NcclCall> steps;
  // Plans the call in which members vote on this one (CommunicatorCore::DeviceVote).
  std::shared_ptr<const Plan> meeting;
  // Names the GPU that holds all of this member's data, or the host if no single GPU does. `anywhere` means no data.
  int device = anywhere;
  // Names the GPU of the program's stream. The default stream is that of the GPU with the data.
  int stream_device = anywhere;
  std::function<BoundCall()> make_host_call;
  DevicePath path = DevicePath::unknown;
  // True if all members give the same parts of the memory that NCCL has registered.
  bool is_same_memory = false;
  void set_same_memory(bool is_same) {
    is_same_memory = is_same;
    for (nccl::NcclCall& step : steps) step.is_same_memory = is_same;
  }
  std::uint64_t places = 0;            // Holds nccl::NcclCommunicator::places_of at the time of the vote.
  std::optional<BoundCall> host_call;  // Is made when it is needed.
};

}  // namespace lockstep::detail
