// SPDX-License-Identifier: Apache-2.0
// Prepares calls that cannot use their data in place, and finds data that was freed since.
//
// A CallBinder owns it. The staging memory belongs to the BoundCall, so a call that is planned once keeps its memory.
#pragma once

#include "collectives/communicator/bound_call.hpp"
#include "collectives/communicator/call_request.hpp"
#include "collectives/communicator/communicator_member.hpp"
#include "collectives/plan.hpp"

namespace lockstep::detail {

// Gives planned calls their staging memory. It keeps nothing itself.
class CallStaging {
 public:
  explicit CallStaging(CommunicatorMember& member) : member_(member) {}

  // True if members that share GPUs keep the order of a stream themselves, for contiguous data. It is equal on all
  // members.
  bool can_keep_order(const CallRequest& request, const Plan& plan) const;
  // Gives the call staging memory if it cannot use the request's data in place.
  void stage(BoundCall& bound_call, const CallRequest& request) const;
  // Returns the devices of data that may be freed while the call is under way.
  static BufferDevices devices_of(const Call& call);
  // Returns memory of make_staging_buffer(); the caller shares it. If that fails, the other members are told.
  StagingBuffer take_memory(std::size_t bytes, bool for_gpu) const;
  // Notes where the request's data is, for refuse_if_freed().
  void locate(BoundCall& bound_call, const CallRequest& request) const;
  // Throws Error usage if data of a planned call was freed.
  void refuse_if_freed(const BoundCall& bound_call, const Origin& origin) const;
  // Logs why members could not map each other's memory on GPUs.
  void log_mapping_failure() const;

 private:
  BoundCall::BufferLocation location_of(const BufferView& data, std::size_t element_bytes) const;

  CommunicatorMember& member_;
};

}  // namespace lockstep::detail
