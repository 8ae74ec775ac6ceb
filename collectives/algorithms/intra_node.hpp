// SPDX-License-Identifier: Apache-2.0
// Holds the beginnings of algorithms that use the shared memory of their nodes.
#pragma once

#include <algorithm>
#include <utility>

#include "collectives/algorithms/node_position.hpp"

namespace lockstep {

// True if some node has several members; else shared memory would have no use.
inline bool has_neighbours(const Shape& shape) {
  return has_nodes(shape) &&
         std::ranges::any_of(shape.levels->nodes, [](const auto& members) { return members.size() > 1; });
}

// True if the members of each node follow each other, and so do the nodes.
inline bool has_runs(const Shape& shape) {
  int next = 0;
  return has_neighbours(shape) && std::ranges::all_of(shape.levels->nodes, [&](const auto& members) {
           return std::ranges::all_of(members, [&](int member) { return member == next++; });
         });
}

// Returns a step of my node's members; `root` is an index among them.
inline IntraNodeStep in_node(const NodePosition& me, Collective collective, const Slice& from, const Slice& to,
                             int root = 0) {
  return {.collective = collective, .members = me.node_members(), .root = root, .from = from, .to = to};
}

// Returns a schedule of this step alone. A member that is alone on its node copies its data instead.
inline Schedule only(IntraNodeStep node_step) {
  ScheduleBuilder node;
  if (node_step.members.size() > 1) {
    node.round().node_step(std::move(node_step));
  } else if (node_step.collective != Collective::barrier) {
    node.round().copy(node_step.to, node_step.from);
  }
  return node.done();
}

}  // namespace lockstep
