// SPDX-License-Identifier: Apache-2.0
// Shares memory without a name between a member and the next one on its node. Its purpose is to measure how fast a
// member reads its neighbour's fresh data.
#pragma once

#include <cstddef>

#include "collectives/communicator/communicator.hpp"
#include "topology/base/shared_memory.hpp"

namespace lockstep::bench {

// Owns this member's memory, and maps that of its neighbour.
class NeighbourMemory {
 public:
  // The size of each memory is in bytes.
  static constexpr std::size_t size = std::size_t{1} << 21U;

  // All members construct it together. works() is false for a member that is alone on its node, or that may not map its
  // neighbour's memory.
  explicit NeighbourMemory(Communicator& world);

  bool works() const { return own_.memory() && neighbours_.memory(); }
  std::byte* own() { return own_.memory().get(); }
  const std::byte* neighbours() const { return neighbours_.memory().get(); }

 private:
  SharedMemory own_;
  SharedMemory neighbours_;
};

}  // namespace lockstep::bench
