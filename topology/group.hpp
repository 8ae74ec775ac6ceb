// SPDX-License-Identifier: Apache-2.0
// Ordered members and where one of them stands among them. Hierarchy is groups, not special code:
// each function below derives one from the topology, ordered so that neighbours in the group are
// neighbours in the machine. A value without a transport.
#pragma once

#include <functional>
#include <vector>

#include "topology/topology.hpp"

namespace lockstep {

class Group {
 public:
  // `index` is -1 for a member that looks at a group it is not in.
  Group(std::vector<int> ranks, int my_rank);

  int size() const { return static_cast<int>(ranks_.size()); }
  int index() const { return index_; }
  bool contains_me() const { return index_ != none; }
  int rank(int index) const { return ranks_.at(static_cast<std::size_t>(index)); }
  const std::vector<int>& ranks() const { return ranks_; }

  bool operator==(const Group&) const = default;

 private:
  std::vector<int> ranks_;
  int index_;
};

Group world_group(const Topology& topology, int my_rank);
Group node_group(const Topology& topology, int node, int my_rank);
// The first member of every node.
Group leader_group(const Topology& topology, int my_rank);
// The i-th member of every node that has one. Where all nodes have equally many members, the rails
// are equally long.
Group rail_group(const Topology& topology, int i, int my_rank);
int rail_count(const Topology& topology);  // the largest number of members on a node
// Members with the same colour as me, ordered by key, then by ring order; keys may be equal.
Group split_group(const Group& from, const std::function<int(int rank)>& colour,
                  const std::function<int(int rank)>& key, int my_rank);

}  // namespace lockstep
