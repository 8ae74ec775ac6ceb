// SPDX-License-Identifier: Apache-2.0
// One call as the compiler has left it: no element type any more. And the check that turns it into what can be
// planned, with a sentence for everything that is wrong.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "collectives/communicator/buffers.hpp"
#include "collectives/communicator/operations.hpp"
#include "collectives/gpu/device_backend.hpp"
#include "collectives/plan.hpp"

namespace lockstep::detail {

struct CallRequest {
  Collective collective = Collective::barrier;
  DataType type = DataType::u8;
  std::size_t element_bytes = 1;
  Reduction reduction = {.op = ReduceOp::sum};
  Order order = Order::fast;
  WireFormat wire = WireFormat::as_is;
  int root = 0;
  BufferView input = {};
  BufferView output = {};
  // Unequal forms: what every member gives or takes, and where the blocks lie if not one after the other.
  std::span<const std::size_t> gives = {};
  std::span<const std::size_t> gives_offsets = {};
  std::span<const std::size_t> takes = {};
  std::span<const std::size_t> takes_offsets = {};
  Origin origin = {};
  const char* wrong = nullptr;             // what was seen while it was made
  std::optional<gpu::Stream> stream = {};  // in which it is ordered
  std::uint64_t layout = 0;                // of the tensors that are one call; see layout_of()
};

// Cuts of unequal forms, each kept once, so that a repeated call finds its own without allocating.
class PartitionCache {
 public:
  struct BlockPartition {
    Blocks blocks;
    std::size_t extent;                  // where the last block ends
    std::optional<std::size_t> overlap;  // the first element that is in two blocks
  };
  const BlockPartition& find(std::span<const std::size_t> counts, std::span<const std::size_t> offsets);
  // Of a member that knows its own block only.
  const BlockPartition& only(int members, int index, std::size_t count);

 private:
  std::vector<BlockPartition> all_;
  std::vector<std::size_t> counts_;  // for only()
};

// What is asked, checked.
// Throws Error usage naming the call, its line, what is wrong and what would be right.
Spec spec_of(const CallRequest& request, int size, int index, PartitionCache& partitions);

// "all_reduce (solver.cpp:31)", for messages.
std::string name_of(const CallRequest& request);

}  // namespace lockstep::detail
