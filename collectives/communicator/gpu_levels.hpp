// SPDX-License-Identifier: Apache-2.0
// Members on GPUs in two levels: groups of those that are near each other, and what joins the groups. A collective is
// one of the near ones, then one across, then one of the near ones again, on memory of the GPUs. With GPUs 0 0 1:
//
//   owners, all-reduce   the sum of 0 and 1 to 0, which is the first on its GPU: its owner
//                        among 0 and 2, the owners
//                        from 0 to 1
//   rails, all-reduce    with a GPU each and two nodes, 0 1 | 2 3:  halves of the nodes' sums to 0 1 | 2 3
//                        among 0 and 2, and among 1 and 3, each of half as much
//                        both halves to all of a node
//
// Whether the near ones share a GPU or have NCCL, and what goes across, is their teams' own affair.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "collectives/communicator/arrangement.hpp"
#include "collectives/communicator/ask.hpp"
#include "collectives/nccl/clique.hpp"
#include "topology/base/error.hpp"

namespace lockstep::detail {

class Team;

class GpuLevels {
 public:
  // owners: one member of each group goes across. rails: all do, each with those of its place; groups are even.
  enum class Form : std::uint8_t { owners, rails };
  // Nobody where a group, or what joins them, is one member alone; and for those that do not go across.
  struct Teams {
    std::shared_ptr<Team> near;
    std::shared_ptr<Team> across;
  };

  GpuLevels(Arrangement arrangement, Form form, int me, int device, Teams teams);
  // All members end it together.
  ~GpuLevels();
  GpuLevels(const GpuLevels&) = delete;
  GpuLevels& operator=(const GpuLevels&) = delete;

  int device() const { return device_; }
  // The same on all members.
  bool can_do(const Spec& spec) const;
  // In the order of the calls, on all members; several are all_reduce or broadcast in place, and alike. Each may last
  // so long.
  void run(std::span<const nccl::Step> steps, Duration limit, const Origin& origin);
  // Who waits inside for this member hears why it does not come.
  void refuse(const Error& error) noexcept;

 private:
  // Memory that is kept for the next call.
  enum Scratch : std::uint8_t { whole, scaled, first, second, third, scratches };
  struct Job {
    Spec spec;  // what is left to do: nothing is divided or scaled in it
    const std::byte* input;
    std::byte* output;
    bool divides;
    Origin origin;

    std::size_t bytes(std::size_t elements) const { return elements * spec.element_bytes; }
  };
  struct Side {
    const void* data = nullptr;
    std::size_t count = 0;
  };

  void run_one(const nccl::Step& step, const Origin& origin);
  void run_together(std::span<const nccl::Step> steps, const Origin& origin);
  void by_owners(const Job& job);
  void by_rails(const Job& job);
  void all_reduce_by_owners(const Job& job);
  void reduce_by_owners(const Job& job);
  void scatter_by_owners(const Job& job);
  void gather_by_owners(const Job& job);
  void broadcast_by_owners(const Job& job);
  void reduce_by_rails(const Job& job);
  void scatter_by_rails(const Job& job);
  void gather_by_rails(const Job& job);
  void broadcast_by_rails(const Job& job);

  // A call of one of the teams; where there is none, what it does for one member.
  void go(Team* team, const Job& job, Collective collective, Side input, Side output, int root = 0,
          std::span<const std::size_t> counts = {}) const;
  void near(const Job& job, Collective collective, Side input, Side output, int root = 0) const;
  void across(const Job& job, Collective collective, Side input, Side output, int root = 0) const;
  // Blocks of all groups, as long as they have members.
  void across_blocks(const Job& job, Collective collective, Side input, Side output) const;

  bool is_owner() const { return arrangement_.place_of(me_) == 0; }
  std::byte* take(Scratch which, std::size_t bytes);
  void copy(std::byte* to, const std::byte* from, std::size_t bytes) const;
  // Blocks of all members, one after the other in the order of the members or in that one.
  void reorder(const std::vector<int>& order, std::byte* in_order, std::byte* in_that, std::size_t bytes,
               bool packs) const;
  void pack(std::span<const nccl::Step> steps, std::byte* all, bool packs) const;
  void divide(const Job& job, std::byte* data, std::size_t count) const;
  const std::byte* scale(const nccl::Step& step, std::size_t count);

  Arrangement arrangement_;
  Form form_;
  int me_;
  int device_;
  Teams teams_;
  struct Kept {
    std::byte* latest() const { return memories.empty() ? nullptr : memories.back().get(); }
    std::vector<std::shared_ptr<std::byte>> memories;
    std::size_t bytes = 0;  // of the last one, which is used
  };
  std::vector<Kept> kept_{scratches};
};

}  // namespace lockstep::detail
