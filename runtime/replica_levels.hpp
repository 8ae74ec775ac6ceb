// SPDX-License-Identifier: Apache-2.0
// Decides which replicas of a process meet first: those that share most of the machine. Pure.
#pragma once

#include <string>
#include <vector>

#include "topology/machine_shape.hpp"

namespace lockstep::detail {

// Groups replicas at one level. A group's number is that of its first replica. Every group consists of whole groups of
// the level before.
struct ReplicaLevel {
  // Names the unit that a group shares: "core", "L2 cache", "L3 cache", "NUMA node", "package", "process".
  std::string name;
  // Holds the group of each replica.
  std::vector<int> groups;
  bool operator==(const ReplicaLevel&) const = default;
};

// Returns the levels from the nearest to the one of all replicas. Levels that unite no groups are left out. A single
// replica has none.
std::vector<ReplicaLevel> replica_levels(const std::vector<SharedUnits>& replicas);

}  // namespace lockstep::detail
