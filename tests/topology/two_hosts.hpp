// SPDX-License-Identifier: Apache-2.0
// Three members on two hosts that do not exist: processes 4711 and 4712 on node03, and 88 on node04.
#pragma once

#include <memory>
#include <utility>

#include "tests/topology/shapes.hpp"
#include "topology/topology.hpp"

namespace lockstep::test {

inline std::shared_ptr<const Topology> two_hosts() {
  TopologyParts parts;
  parts.machines = {shape({.cores = 2})};
  for (const char* const host : {"node03", "node04"}) parts.nodes.push_back({host, 0, {}, {}});
  const int place = parts.intern(Place{0, IndexSet::range(0, 1), 0, {}});
  parts.members = {{0, place, 4711}, {0, place, 4712}, {1, place, 88}};
  return std::make_shared<const Topology>(std::move(parts));
}

}  // namespace lockstep::test
