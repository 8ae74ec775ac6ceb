// SPDX-License-Identifier: Apache-2.0
// Finds the faster of two paths for calls of members on several nodes: NCCL alone, or levels.
//
// A GpuPath owns it. Members time their calls and agree on the times, so all switch to the faster path in the same
// call.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "collectives/communicator/gpu_arrangement.hpp"
#include "collectives/communicator/member_groups.hpp"

namespace lockstep::detail {

// Keeps a trial for each kind and size of call. Its state is equal on all members.
class PathTrials {
 public:
  PathTrials(Membership& members, GpuArrangement& arrangement) : members_(members), arrangement_(arrangement) {}

  // Returns the trial of a call that members can run in two ways, until the faster one is known. Then it chooses that
  // path and returns null.
  Trial* trial_of(const BoundCall& bound_call);
  // Waits until all members have called it, because a late one would be measured. Returns the time.
  Duration begin(const Origin& origin);
  // Ends a turn that was begun then. The last turn chooses the faster way by the times of all members.
  void end(Trial& trial, Duration begun, const BoundCall& bound_call);
  // Keeps memory that messages may still use.
  void keep_memory();

 private:
  std::span<const std::uint64_t> largest_of(const std::vector<std::uint64_t>& mine, const Origin& origin);

  Membership& members_;
  GpuArrangement& arrangement_;
  // The last number of the key is the bit width of the size in bytes.
  std::map<std::tuple<Collective, DataType, ReduceOp, Order, int>, Trial> trials_;
  // Holds this member's times, and the largest of all. It is shared because a transport may use it after a failure.
  std::shared_ptr<std::vector<std::uint64_t>> times_ = std::make_shared<std::vector<std::uint64_t>>(2 * Trial::turns);
};

}  // namespace lockstep::detail
