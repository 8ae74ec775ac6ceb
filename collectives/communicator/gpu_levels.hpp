// SPDX-License-Identifier: Apache-2.0
// Runs collectives of members of which some share a GPU on two levels: among those of each GPU, and among the owners,
// one member of each GPU. An all-reduce, with GPUs 0 0 1, has these steps:
//
//   1. Reduce 0 and 1 to 0, the owner of their GPU.
//   2. All-reduce among 0 and 2, the owners.
//   3. Broadcast from 0 to 1.
//
// The sub-communicators know how data goes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator/call_request.hpp"
#include "collectives/communicator/member_groups.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"

namespace lockstep::detail {

class CommunicatorCore;

// Owns the sub-communicators. One thread uses it at a time.
class GpuLevels {
 public:
  // Are null for a level with a single member. `between` is also null for members that are no owners.
  struct SubCommunicators {
    std::shared_ptr<CommunicatorCore> group;
    std::shared_ptr<CommunicatorCore> between;
  };

  GpuLevels(MemberGroups member_groups, int me, int device, SubCommunicators sub_communicators);
  // Closes the sub-communicators. All members call it together.
  ~GpuLevels();
  GpuLevels(const GpuLevels&) = delete;
  GpuLevels& operator=(const GpuLevels&) = delete;

  int device() const { return device_; }
  // True if the levels can run the collective. It is equal on all members.
  bool can_do(const Spec& spec) const;
  // Runs the steps in the order of the calls, on all members. Several steps must be all_reduce or broadcast in place,
  // and alike. Each may last `limit`.
  void run(std::span<const nccl::NcclCall> steps, Duration limit, const Origin& origin);
  // Tells the error to members that wait for this one in a sub-communicator.
  void refuse(const Error& error) noexcept;

 private:
  // Names the buffers that are kept for the next call.
  enum Scratch : std::uint8_t { whole, scaled, first, second, third, scratches };
  struct LevelCall {
    Spec spec;  // Describes the remaining work: its operation neither divides nor scales.
    const std::byte* input;
    std::byte* output;
    bool divides;
    Origin origin;

    std::size_t bytes(std::size_t elements) const { return elements * spec.element_bytes; }
  };
  struct LevelBuffer {
    const void* data = nullptr;
    std::size_t count = 0;
  };

  void run_one(const nccl::NcclCall& step, const Origin& origin);
  void run_together(std::span<const nccl::NcclCall> steps, const Origin& origin);
  void by_owners(const LevelCall& level_call);
  void all_reduce_by_owners(const LevelCall& level_call);
  void reduce_by_owners(const LevelCall& level_call);
  void scatter_by_owners(const LevelCall& level_call);
  void gather_by_owners(const LevelCall& level_call);
  void broadcast_by_owners(const LevelCall& level_call);

  // Runs a call of a sub-communicator. With null it copies, as for one member.
  void run_on(CommunicatorCore* core, const LevelCall& level_call, Collective collective, LevelBuffer input,
              LevelBuffer output, int root = 0, std::span<const std::size_t> counts = {}) const;
  void in_group(const LevelCall& level_call, Collective collective, LevelBuffer input, LevelBuffer output,
                int root = 0) const;
  void between_groups(const LevelCall& level_call, Collective collective, LevelBuffer input, LevelBuffer output,
                      int root = 0) const;
  // Runs a call with a block for each group, as long as the group has members.
  void blocks_between_groups(const LevelCall& level_call, Collective collective, LevelBuffer input,
                             LevelBuffer output) const;

  bool is_owner() const { return member_groups_.place_of(me_) == 0; }
  std::byte* take(Scratch which, std::size_t bytes);
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const;
  // Copies blocks between the order of members (`in_order`) and the given order (`in_that`). `packs` selects the
  // direction.
  void reorder(const std::vector<int>& order, std::byte* in_order, std::byte* in_that, std::size_t bytes,
               bool packs) const;
  void pack(std::span<const nccl::NcclCall> steps, std::byte* all, bool packs) const;
  void divide(const LevelCall& level_call, std::byte* data, std::size_t count) const;
  const std::byte* scale(const nccl::NcclCall& step, std::size_t count);

  MemberGroups member_groups_;
  int me_;
  int device_;
  SubCommunicators sub_communicators_;
  struct ScratchBuffers {
    std::byte* latest() const { return memories.empty() ? nullptr : memories.back().get(); }
    std::vector<std::shared_ptr<std::byte>> memories;
    std::size_t bytes = 0;  // Is the size of the last memory, which is in use.
  };
  std::vector<ScratchBuffers> kept_{scratches};
};

}  // namespace lockstep::detail
