// SPDX-License-Identifier: Apache-2.0
// Lets members vote on a call before GPUs run it: whether all can, and whether their requests fit.
//
// A GpuPath owns it. A vote is a small all_reduce on the host, so it takes as long as the slowest member's arrival.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <string_view>
#include <utility>

#include "collectives/communicator/gpu_arrangement.hpp"

namespace lockstep::detail {

// Runs votes. A vote is a call with the signature of the other, so that different calls are found before NCCL is
// entered.
class DeviceVotes {
 public:
  DeviceVotes(CommunicatorMember& member, GpuArrangement& arrangement) : member_(member), arrangement_(arrangement) {}

  // Returns the plan of the vote on a call of this spec. It has that call's signature. It is the same object again for
  // the same signature and vote, which are equal on all members.
  std::shared_ptr<const Plan> plan_for(const Spec& spec, std::string_view name, PlanChoice vote);
  // Lets the members vote, and chooses the path of the call. Throws the same error on all members if their requests do
  // not fit.
  void decide(GpuCall& call, const Origin& origin);
  // Keeps memory that messages may still use.
  void keep_memory();

 private:
  // Holds a member's vote before GPUs run a call; the votes of all are added. The numbers count members that cannot,
  // hash given minus taken messages, and count members with another GPU's stream.
  using Vote = std::array<std::uint64_t, 3>;

  Vote vote_of(const GpuCall& call) const;
  bool has_other_stream(const GpuCall& call) const;
  Error other_stream(const GpuCall& call, const Origin& origin) const;
  Error different_counts(const Spec& spec) const;

  CommunicatorMember& member_;
  GpuArrangement& arrangement_;
  // Has the key hash of the signature, the vote's number.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::shared_ptr<const Plan>> plans_;
  // Holds this member's vote, and the sum of all. It is shared because a transport may use it after a failure.
  std::shared_ptr<std::array<Vote, 2>> votes_ = std::make_shared<std::array<Vote, 2>>();
};

}  // namespace lockstep::detail
