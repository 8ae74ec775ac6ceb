// SPDX-License-Identifier: Apache-2.0
// Machines made by hand, for tests that must not need hwloc.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "topology/base/text.hpp"
#include "topology/description.hpp"
#include "topology/topology.hpp"

namespace lockstep::test {

struct Made {
  int packages = 1;
  int numas = 1;     // in each package
  int cores = 1;     // in each NUMA node
  int threads = 1;   // in each core
  int l3_cores = 0;  // cores that share an L3; 0: no L3
};

inline MachineShape shape(const Made& made) {
  MachineShape machine;
  machine.model = text("made ", made.packages, "x", made.numas, "x", made.cores, "x", made.threads);
  const int cores = made.packages * made.numas * made.cores;
  for (int pu = 0; pu < cores * made.threads; ++pu) {
    const int core = pu / made.threads;
    const int numa = core / made.cores;
    machine.pus.push_back({.os_index = pu,
                           .core = core,
                           .l2 = none,
                           .l3 = made.l3_cores == 0 ? none : core / made.l3_cores,
                           .numa = numa,
                           .package = numa / made.numas});
  }
  return machine;
}

struct MadeNode {
  int machine = 0;
  std::vector<std::pair<int, int>> members;  // first and last hardware thread of each
};

inline Topology made_of(std::vector<MachineShape> machines, const std::vector<MadeNode>& nodes) {
  TopologyParts parts;
  parts.machines = std::move(machines);
  for (const MadeNode& node : nodes) {
    const int number = static_cast<int>(parts.nodes.size());
    parts.nodes.push_back({text("host", number), node.machine, {}, {}});
    for (const auto& [first, last] : node.members) {
      parts.members.push_back({number, parts.intern(Place{node.machine, IndexSet::range(first, last), 0, {}}), 0});
    }
  }
  return Topology(std::move(parts));
}

// Nodes of 8 cores each, with so many members.
inline std::shared_ptr<const Topology> nodes_of(const std::vector<int>& members, std::vector<Nic> nics = {}) {
  MachineShape machine;
  for (int core = 0; core < 8; ++core) machine.pus.push_back({.os_index = core, .core = core});
  machine.nics = std::move(nics);
  std::vector<DescribedNodes> nodes;
  nodes.reserve(members.size());
  for (const int each : members) nodes.push_back({machine, 1, each});
  return std::make_shared<const Topology>(describe(nodes));
}

}  // namespace lockstep::test
