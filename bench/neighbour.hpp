// SPDX-License-Identifier: Apache-2.0
// Memory without a name that a member shares with the next one on its node, to see how fast one reads what the other
// has just written.
#pragma once

#include <cstddef>

#include "collectives/communicator/communicator.hpp"
#include "topology/base/shared_memory.hpp"

namespace lockstep::bench {

class NeighbourMemory {
 public:
  static constexpr std::size_t size = std::size_t{1} << 21U;

  // All members call it; those that are alone on their node, or may not look at their neighbour, do without.
  explicit NeighbourMemory(Communicator& world);

  bool works() const { return own_.memory() && neighbours_.memory(); }
  std::byte* own() { return own_.memory().get(); }
  const std::byte* neighbours() const { return neighbours_.memory().get(); }

 private:
  SharedMemory own_;
  SharedMemory neighbours_;
};

}  // namespace lockstep::bench
