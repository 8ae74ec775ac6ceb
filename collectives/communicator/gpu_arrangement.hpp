// SPDX-License-Identifier: Apache-2.0
// Finds how members with their data on GPUs reach each other: by NCCL, or in levels.
//
// A GpuPath owns it. All members make the arrangement together, inside the first call that needs it.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>

#include "collectives/communicator/communicator_factory.hpp"
#include "collectives/communicator/gpu_call.hpp"
#include "collectives/communicator/gpu_levels.hpp"
#include "collectives/communicator/owned_nccl_communicator.hpp"

namespace lockstep::detail {

// Owns NCCL's group and the levels. Members arrange themselves when all have their data on GPUs for the first time. The
// arrangement is equal on all members.
class GpuArrangement {
 public:
  // Sets `query_bytes` to DevicePath::never when it finds that NCCL runs nothing.
  GpuArrangement(CommunicatorMember& member, CommunicatorFactory& factory, std::size_t& query_bytes)
      : member_(member), factory_(factory), query_bytes_(query_bytes) {}

  OwnedNcclCommunicator& nccl() { return nccl_; }
  const OwnedNcclCommunicator& nccl() const { return nccl_; }
  // Returns the levels; null if there are none.
  GpuLevels* levels() const { return levels_.get(); }
  bool is_made() const { return nccl_.is_made() || levels_ != nullptr; }
  // True if GPUs may run calls of this communicator.
  bool may_run() const { return query_bytes_ != DevicePath::never; }
  // True if data on this device can take the path that the members have found.
  bool fits(int device) const;
  // True if the call may run on GPUs, as far as is known before members ask each other.
  bool may_run(const GpuCall& call) const { return may_run() && (nccl_.is_made() || !levels_ || has_levels_for(call)); }
  bool has_levels_for(const GpuCall& call) const;

  // Chooses the path of a call that has its data on GPUs at all members. They arrange themselves the first time.
  void choose_path(GpuCall& call, const Origin& origin);
  // Ends the levels, also after a failed call: members that wait inside for this one are told.
  void end_levels() noexcept;

 private:
  // Finds out which members share a GPU. NCCL refuses those, and not on all members at once.
  void make(int device, const Origin& origin);
  void make_levels(const MemberGroups& member_groups, int device);
  std::shared_ptr<CommunicatorCore> part(int colour, int key, std::string_view name, bool has_nccl);

  CommunicatorMember& member_;
  CommunicatorFactory& factory_;
  std::size_t& query_bytes_;
  OwnedNcclCommunicator nccl_{member_};
  std::unique_ptr<GpuLevels> levels_;
};

}  // namespace lockstep::detail
