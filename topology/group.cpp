// SPDX-License-Identifier: Apache-2.0
// Derives groups from a topology.
#include "topology/group.hpp"

#include <algorithm>

namespace lockstep {
namespace {

int index_of(const std::vector<int>& ranks, int rank) {
  const auto found = std::ranges::find(ranks, rank);
  return found == ranks.end() ? none : static_cast<int>(found - ranks.begin());
}

std::vector<int> copy(std::span<const int> ranks) { return {ranks.begin(), ranks.end()}; }

}  // namespace

Group::Group(std::vector<int> ranks, int my_rank) : ranks_(std::move(ranks)), index_(index_of(ranks_, my_rank)) {}

Group world_group(const Topology& topology, int my_rank) { return {copy(topology.ring_order()), my_rank}; }

Group node_group(const Topology& topology, int node, int my_rank) {
  return {copy(topology.ranks_of_node(node)), my_rank};
}

Group leader_group(const Topology& topology, int my_rank) { return rail_group(topology, 0, my_rank); }

Group rail_group(const Topology& topology, int i, int my_rank) {
  std::vector<int> ranks;
  for (int node = 0; node < topology.node_count(); ++node) {
    const auto members = topology.ranks_of_node(node);
    if (static_cast<std::size_t>(i) < members.size()) ranks.push_back(members[static_cast<std::size_t>(i)]);
  }
  return {std::move(ranks), my_rank};
}

int rail_count(const Topology& topology) {
  std::size_t most = 0;
  for (int node = 0; node < topology.node_count(); ++node) most = std::max(most, topology.ranks_of_node(node).size());
  return static_cast<int>(most);
}

}  // namespace lockstep
