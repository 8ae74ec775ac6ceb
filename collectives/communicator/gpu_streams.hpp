// SPDX-License-Identifier: Apache-2.0
// Runs calls in the order of a GPU's stream without NCCL.
//
// A GpuPath owns it. The host returns when everything is queued in the stream; the room's steps keep the order among
// the members.
#pragma once

#include "collectives/communicator/device_path.hpp"
#include "collectives/communicator/gpu_scratch.hpp"
#include "collectives/communicator/owned_nccl_communicator.hpp"

namespace lockstep::detail {

// Orders calls of members that share GPUs by events. The host waits for the stream if it has a part in the call.
class GpuStreams {
 public:
  // Looks for failures of `nccl` while it waits.
  GpuStreams(CommunicatorMember& member, const OwnedNcclCommunicator& nccl) : member_(member), nccl_(nccl) {}

  // Let the host wait for the work in a stream, or for marks.
  void wait_for(gpu::Stream stream, const Origin& origin);
  void wait_for(const StreamMarks& marks, const Origin& origin);
  // Starts a call among members that share GPUs. It waits for the other members, but not for GPUs if all have their
  // data there.
  void begin(const BoundCall& bound_call, DeviceProgress& progress);
  // Marks the end of the call in its stream, for a Request.
  void mark_end(const BoundCall& bound_call, DeviceProgress& progress);
  // True if the call multiplies this member's input on the host before members meet, so that the input must be
  // complete.
  static bool is_changed_by_host(const Call& call);
  // Returns scratch memory of a GPU, which is kept for reuse after the caller has released it.
  StagingBuffer scratch(int device, std::size_t bytes);
  // Waits until streams have finished the work of this member and of others in its memory, before their memory is
  // freed.
  void end() noexcept;

 private:
  bool are_working();
  void hold(const BoundCall& bound_call) noexcept;

  CommunicatorMember& member_;
  const OwnedNcclCommunicator& nccl_;
  GpuScratch scratch_;
};

}  // namespace lockstep::detail
