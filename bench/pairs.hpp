// SPDX-License-Identifier: Apache-2.0
// Measures what pairs of members do: one after the other while the rest waits, and in rounds of disjoint pairs that
// work at once. Nodes are told apart by one member each, so that the cost grows with nodes and members of a node.
#pragma once

#include <functional>

#include "bench/links.hpp"
#include "collectives/communicator/communicator.hpp"

namespace lockstep::bench {

struct PairEffort {
  double seconds = 0.05;         // for each of the things that are measured of a pair
  std::size_t most_alone = 500;  // with more pairs, they are measured in rounds only
  // What seems slow is measured again before it is called slow: so often what a slow member explains, which many of its
  // pairs have said, and so often a pair that stands alone.
  int looks = 3;
  int looks_at_single = 6;
};

// Disjoint pairs in each round, all pairs in all rounds together.
std::vector<std::vector<std::pair<int, int>>> rounds_of(const std::vector<int>& members);

// All members call it and have the same result, judged. `progress` is called with how many of how many are done.
LinkVerdict measure_links(Communicator& world, const PairEffort& effort, const LinkBounds& bounds,
                          std::vector<PairLink>& links, const std::function<void(std::size_t, std::size_t)>& progress);

}  // namespace lockstep::bench
