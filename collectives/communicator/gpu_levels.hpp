// SPDX-License-Identifier: Apache-2.0
// Members on GPUs form two levels: groups of members that are near each other, and what joins the groups. A collective
// runs in the groups, then across them, then in the groups again, on memory of the GPUs. With GPUs 0 0 1:
//
//   owners, all-reduce   the sum of 0 and 1 to 0, which is the first on its GPU: its owner
//                        among 0 and 2, the owners
//                        from 0 to 1
//   rails, all-reduce    with a GPU each and two nodes, 0 1 | 2 3:  halves of the nodes' sums to 0 1 | 2 3
//                        among 0 and 2, and among 1 and 3, each of half as much
//                        both halves to all of a node
//
// These sub-communicators know whether a group shares a GPU or has NCCL, and how data goes across.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator/call_request.hpp"
#include "collectives/communicator/member_groups.hpp"
#include "collectives/nccl/nccl_communicator.hpp"
#include "topology/base/error.hpp"

namespace lockstep::detail {

class CommunicatorCore;

class GpuLevels {
 public:
  // owners: one member of each group goes across. rails: all do, each with those of its place; groups are even.
  enum class LevelScheme : std::uint8_t { owners, rails };
  // Nobody where a group, or what joins them, is one member alone; and for those that do not go across.
  struct SubCommunicators {
    std::shared_ptr<CommunicatorCore> near;
    std::shared_ptr<CommunicatorCore> across;
  };

  GpuLevels(MemberGroups member_groups, LevelScheme scheme, int me, int device, SubCommunicators sub_communicators);
  // All members end it together.
  ~GpuLevels();
  GpuLevels(const GpuLevels&) = delete;
  GpuLevels& operator=(const GpuLevels&) = delete;

  int device() const { return device_; }
  // The same on all members.
  bool can_do(const Spec& spec) const;
  // In the order of the calls, on all members; several are all_reduce or broadcast in place, and alike. Each may last
  // so long.
  void run(std::span<const nccl::NcclCall> steps, Duration limit, const Origin& origin);
  // Who waits inside for this member hears why it does not come.
  void refuse(const Error& error) noexcept;

 private:
  // Memory that is kept for the next call.
  enum Scratch : std::uint8_t { whole, scaled, first, second, third, scratches };
  struct LevelCall {
    Spec spec;  // what is left to do: nothing is divided or scaled in it
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
  void by_rails(const LevelCall& level_call);
  void all_reduce_by_owners(const LevelCall& level_call);
  void reduce_by_owners(const LevelCall& level_call);
  void scatter_by_owners(const LevelCall& level_call);
  void gather_by_owners(const LevelCall& level_call);
  void broadcast_by_owners(const LevelCall& level_call);
  void reduce_by_rails(const LevelCall& level_call);
  void scatter_by_rails(const LevelCall& level_call);
  void gather_by_rails(const LevelCall& level_call);
  void broadcast_by_rails(const LevelCall& level_call);

  // A call of one of the sub-communicators; where there is none, what it does for one member.
  void go(CommunicatorCore* core, const LevelCall& level_call, Collective collective, LevelBuffer input,
          LevelBuffer output, int root = 0, std::span<const std::size_t> counts = {}) const;
  void near(const LevelCall& level_call, Collective collective, LevelBuffer input, LevelBuffer output,
            int root = 0) const;
  void across(const LevelCall& level_call, Collective collective, LevelBuffer input, LevelBuffer output,
              int root = 0) const;
  // Blocks of all groups, as long as they have members.
  void across_blocks(const LevelCall& level_call, Collective collective, LevelBuffer input, LevelBuffer output) const;

  bool is_owner() const { return member_groups_.place_of(me_) == 0; }
  std::byte* take(Scratch which, std::size_t bytes);
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const;
  // Blocks of all members, one after the other in the order of the members or in that one.
  void reorder(const std::vector<int>& order, std::byte* in_order, std::byte* in_that, std::size_t bytes,
               bool packs) const;
  void pack(std::span<const nccl::NcclCall> steps, std::byte* all, bool packs) const;
  void divide(const LevelCall& level_call, std::byte* data, std::size_t count) const;
  const std::byte* scale(const nccl::NcclCall& step, std::size_t count);

  MemberGroups member_groups_;
  LevelScheme scheme_;
  int me_;
  int device_;
  SubCommunicators sub_communicators_;
  struct ScratchBuffers {
    std::byte* latest() const { return memories.empty() ? nullptr : memories.back().get(); }
    std::vector<std::shared_ptr<std::byte>> memories;
    std::size_t bytes = 0;  // of the last one, which is used
  };
  std::vector<ScratchBuffers> kept_{scratches};
};

}  // namespace lockstep::detail
