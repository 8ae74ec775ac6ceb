// SPDX-License-Identifier: Apache-2.0
// Shares memory by the tickets of topology/, as the node engine does.
#include "bench/neighbour.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include "topology/base/error.hpp"

namespace lockstep::bench {
namespace {

using TicketBytes = std::array<char, 128>;

// Returns nothing if the memory cannot be had.
template <class Make>
SharedMemory try_to(const Make& make) {
  try {
    return make();
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

NeighbourMemory::NeighbourMemory(Communicator& world) {
  // The pages are allocated now, so that a lack of memory shows here, and not as a signal later.
  own_ = try_to([] { return SharedMemory::make(size, true); });
  TicketBytes mine{};
  const std::string ticket = own_.memory() ? own_.ticket() : std::string();
  if (ticket.size() < mine.size()) std::ranges::copy(ticket, mine.begin());
  std::vector<char> all(mine.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(mine, all);
  const Topology& topology = world.topology();
  const auto node_of = [&](int index) { return topology.member(world.ranks()[static_cast<std::size_t>(index)]).node; };
  int next = world.rank();
  do {
    next = (next + 1) % world.size();
  } while (node_of(next) != node_of(world.rank()));
  const std::string theirs(all.data() + mine.size() * static_cast<std::size_t>(next));
  if (next != world.rank() && !theirs.empty()) neighbours_ = try_to([&] { return SharedMemory::open(theirs, size); });
  world.barrier();
  own_.close();
}

}  // namespace lockstep::bench
