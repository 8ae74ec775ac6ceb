// SPDX-License-Identifier: Apache-2.0
// Owns NCCL's communicator of the members, from its making to its end.
#pragma once

#include <memory>
#include <span>

#include "collectives/communicator/communicator_member.hpp"
#include "collectives/communicator/device_path.hpp"
#include "collectives/nccl/nccl_communicator.hpp"

namespace lockstep::detail {

// Waits for NCCL as a call of the communicator does: messages go on meanwhile, and the timeout holds.
class OwnedNcclCommunicator {
 public:
  explicit OwnedNcclCommunicator(CommunicatorMember& member) : member_(member) {}
  // Ends the communicator as end() does.
  ~OwnedNcclCommunicator() { end(); }
  OwnedNcclCommunicator(const OwnedNcclCommunicator&) = delete;
  OwnedNcclCommunicator& operator=(const OwnedNcclCommunicator&) = delete;

  bool is_made() const { return communicator_ != nullptr; }
  // Returns this member's GPU in the communicator, which must have been made.
  int device() const { return communicator_->device(); }

  // Makes the communicator together with all members.
  void join(int device, const Origin& origin);
  // Starts the steps. `bound_call` is the first of their calls.
  void begin(std::span<const nccl::NcclCall> steps, const BoundCall& bound_call, DeviceProgress& progress);
  // Throws failures since the last look, also those of other members.
  void check() const {
    if (communicator_) communicator_->check();
  }
  // Waits for the work that was started before a call.
  void wait_until_idle(const Origin& origin);
  // Aborts the communicator.
  void abort() noexcept { communicator_.reset(); }
  // Waits for unfinished work and ends the communicator, unless something has failed.
  void end() noexcept;

 private:
  CommunicatorMember& member_;
  std::unique_ptr<nccl::NcclCommunicator> communicator_;
};

}  // namespace lockstep::detail
