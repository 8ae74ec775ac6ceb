// SPDX-License-Identifier: Apache-2.0
// Ordered members, and the position of this member among them. Hierarchy is made of groups, not of special code.
// Each function below derives one from the topology, so that neighbours in the group are neighbours in the machine.
// A group is a value without a transport.
#pragma once

#include <vector>

#include "topology/topology.hpp"

namespace lockstep {

// Holds ranks in an order, and the index of this rank there.
class Group {
 public:
  // Makes a group of these ranks. `my_rank` may be none of them; the index is then `none` (-1).
  Group(std::vector<int> ranks, int my_rank);

  // Return the number of members, and this member's index; -1 if it is not in the group.
  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }
  // Throws std::out_of_range for an index that is not there.
  bool contains_me() const { return index_ != none; }
  int rank(int index) const { return ranks_.at(static_cast<std::size_t>(index)); }
  const std::vector<int>& ranks() const { return ranks_; }

  bool operator==(const Group&) const = default;

 private:
  std::vector<int> ranks_;
  int index_;
};

// Return all members, or those of a node, in ring order.
Group world_group(const Topology& topology, int my_rank);
Group node_group(const Topology& topology, int node, int my_rank);
// Returns the first member of every node.
Group leader_group(const Topology& topology, int my_rank);
// Returns the i-th member of every node that has one. If all nodes have equally many members, all rails are equally
// long.
Group rail_group(const Topology& topology, int i, int my_rank);
int rail_count(const Topology& topology);  // returns the largest number of members on a node

}  // namespace lockstep
