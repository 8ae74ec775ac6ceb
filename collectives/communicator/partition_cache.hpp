// SPDX-License-Identifier: Apache-2.0
// Checks a CallRequest and turns it into a Spec, which can be planned. Every mistake gets an error text of its own.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator/call_request.hpp"
#include "collectives/plan.hpp"

namespace lockstep::detail {

// Keeps the partitions of unequal forms, each once, so that a repeated call finds its own without allocating.
class PartitionCache {
 public:
  // Describes blocks of a buffer; all numbers are in elements.
  struct BlockPartition {
    Blocks blocks;
    std::size_t extent;                  // Is the end of the last block.
    std::optional<std::size_t> overlap;  // Is the first element that is in two blocks; nothing if none is.
  };
  // Returns the partition with these counts and offsets, one for each member. Empty offsets mean blocks one after the
  // other. The reference is valid until the next call of find() or only().
  const BlockPartition& find(std::span<const std::size_t> counts, std::span<const std::size_t> offsets);
  // Returns the partition for a member that knows only its own block: the others are empty.
  const BlockPartition& only(int members, int index, std::size_t count);

 private:
  std::vector<BlockPartition> all_;
  std::vector<std::size_t> counts_;  // Serves only(), so that it need not allocate.
};

// True if the blocks have these counts and offsets. Empty offsets mean blocks one after the other.
bool are_cut_as(const Blocks& blocks, std::span<const std::size_t> counts, std::span<const std::size_t> offsets);

// Returns the request of member `index` of `size` as a Spec. Throws Error usage that names the call, its line, the
// mistake and the remedy.
Spec spec_of(const CallRequest& request, int size, int index, PartitionCache& partitions);

}  // namespace lockstep::detail
