// SPDX-License-Identifier: Apache-2.0
// Which replicas of a process meet first: those that share most of the machine. Pure.
#pragma once

#include <string>
#include <vector>

#include "topology/machine_shape.hpp"

namespace lockstep::detail {

// Of each replica, the number of its group: that of the first one in it. Every group is made of whole groups of the
// level before.
struct ReplicaLevel {
  std::string name;  // what a group shares: "core", "L2 cache", "L3 cache", "NUMA node", "package", "process"
  std::vector<int> groups;
  bool operator==(const ReplicaLevel&) const = default;
};

// From the nearest to the one that all are in; levels that bring nobody together are left out. Of one replica, none.
std::vector<ReplicaLevel> replica_levels(const std::vector<SharedUnits>& replicas);

}  // namespace lockstep::detail
