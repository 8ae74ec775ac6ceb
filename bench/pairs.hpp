// SPDX-License-Identifier: Apache-2.0
// Measures pairs of members: one after the other while the rest waits, and in rounds of disjoint pairs that work at the
// same time. Only one member of each node measures the links between nodes, so that the cost grows with nodes and with
// members of a node.
#pragma once

#include <functional>

#include "bench/links.hpp"
#include "collectives/communicator/communicator.hpp"

namespace lockstep::bench {

// Limits the time of the measurements.
struct PairEffort {
  double seconds = 0.05;         // for each of the measurements of a pair
  std::size_t most_alone = 500;  // with more pairs, they are measured in rounds only
  // A link that seems slow is measured again before it is called slow. `looks` is the number of repetitions for a pair
  // that a slow member explains, which many pairs confirm. `looks_at_single` is that for a pair that stands alone.
  int looks = 3;
  int looks_at_single = 6;
};

// Returns rounds of disjoint pairs. All rounds together have each pair once.
std::vector<std::vector<std::pair<int, int>>> rounds_of(const std::vector<int>& members);

// Measures and judges all links; every member has the same result. `progress` is called with the number of finished
// measurements and the number of all. All members call it.
LinkVerdict measure_links(Communicator& world, const PairEffort& effort, const LinkBounds& bounds,
                          std::vector<PairLink>& links, const std::function<void(std::size_t, std::size_t)>& progress);

}  // namespace lockstep::bench
