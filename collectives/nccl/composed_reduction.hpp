// SPDX-License-Identifier: Apache-2.0
// Composes reductions that NCCL lacks: messages bring every rank all parts of its block, and kernels combine them.
#pragma once

#include <span>

#include "collectives/nccl/nccl_call.hpp"

namespace lockstep::nccl {

// Is one such call: member i combines the parts that all members have of block i. In a scan each member gets the whole
// input of all. The endpoint, the call and the scratch memory outlive this object.
class ComposedReduction {
 public:
  ComposedReduction(const NcclEndpoint& endpoint, const NcclCall& call, std::byte* scratch);
  // Returns the bytes of scratch memory that the call needs.
  static std::size_t scratch_bytes(const NcclEndpoint& endpoint, const NcclCall& call);

  // Brings every rank all parts of its block, in one slot per rank. The rank reads its own part in place. The messages
  // belong into a group of NCCL.
  void exchange() const;
  // Combines the parts, after the exchange.
  void combine() const;
  // True if other ranks need this rank's result, or this rank needs theirs; the same on all ranks.
  bool hands_out() const;
  // Sends the results, in another group of NCCL.
  void hand_out() const;

 private:
  // Names one part to combine, and the memory that its intermediate result may overwrite.
  struct CombinePart {
    const std::byte* at;
    std::byte* room;
  };

  std::size_t offset(int block) const;
  std::size_t count(int block) const { return offset(block + 1) - offset(block); }
  std::size_t slot_bytes() const;
  std::byte* slot(int rank) const { return scratch_ + static_cast<std::size_t>(rank) * slot_bytes(); }
  // Returns the place of this member's block of the result while it is handed out.
  std::byte* result() const;
  void combine_before() const;
  void combine_by_own(std::span<const CombinePart> parts, std::size_t count, std::byte* result) const;

  const NcclEndpoint& endpoint_;
  const NcclCall& call_;
  std::byte* scratch_;
  // Holds the elements per block in all_reduce and reduce; the last blocks may be shorter. 0: the call's specification
  // cuts the blocks.
  std::size_t each_ = 0;
};

}  // namespace lockstep::nccl
