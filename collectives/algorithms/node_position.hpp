// SPDX-License-Identifier: Apache-2.0
// Tells where a member is among the nodes. Algorithms that treat members of one node and of different nodes differently
// begin with it.
#pragma once

#include <algorithm>
#include <bit>
#include <vector>

#include "collectives/shape.hpp"

namespace lockstep {

using Nodes = std::vector<std::vector<int>>;

inline int count_of(const std::vector<int>& members) { return static_cast<int>(members.size()); }

// Is the position of a member: the number of its node, and its number within the node. Rail l is the l-th members of
// all nodes. It refers to the levels of the shape, which must outlive it.
struct NodePosition {
  NodePosition(const Shape& shape, int member)
      : nodes(shape.levels->nodes), above(shape.levels->above.get()), rounds_off(shape.rounds_off) {
    while ((local = position(nodes[static_cast<std::size_t>(node)], member)) < 0) ++node;
  }
  // Returns the index of a member in a list; -1 if it is not there.
  static int position(const std::vector<int>& members, int member) {
    const auto found = std::ranges::find(members, member);
    return found == members.end() ? -1 : static_cast<int>(found - members.begin());
  }
  const std::vector<int>& node_members() const { return nodes[static_cast<std::size_t>(node)]; }
  int members() const { return count_of(node_members()); }
  int all_nodes() const { return static_cast<int>(nodes.size()); }
  Group node_group() const { return {node_members(), node_members()[static_cast<std::size_t>(local)]}; }
  // Returns the group of the members with my number in their nodes. All nodes must have that many members.
  Group rail_group() const {
    std::vector<int> rail;
    for (const auto& members : nodes) rail.push_back(members[static_cast<std::size_t>(local)]);
    return {rail, node_members()[static_cast<std::size_t>(local)]};
  }
  // Return the shape of a part of the problem, with `count` elements, among the members of my node or of my rail.
  Shape in_node(std::size_t count) const { return {.size = members(), .index = local, .count = count}; }
  Shape on_rail(std::size_t count) const {
    return {.size = all_nodes(), .index = node, .count = count, .levels = above, .rounds_off = rounds_off};
  }

  const Nodes& nodes;
  const Levels* above;  // of the members on a rail; null: all are alike
  bool rounds_off = false;
  int node = 0;
  int local = 0;
};

// Changes a schedule for input so that it reads the result of an earlier schedule, which lies in the output.
inline Schedule of_result(Schedule schedule) { return moved(std::move(schedule), Space::input, Space::output, 0); }

// True if the members are on more than one node.
inline bool has_nodes(const Shape& shape) { return shape.levels != nullptr && shape.levels->nodes.size() > 1; }

// True if in addition all nodes have equally many members, and more than one.
inline bool has_equal_nodes(const Shape& shape) {
  if (!has_nodes(shape) || shape.levels->nodes.front().size() < 2) return false;
  return std::ranges::all_of(shape.levels->nodes, [&](const std::vector<int>& members) {
    return members.size() == shape.levels->nodes.front().size();
  });
}

// True if in addition every node is a subtree of the balanced tree.
inline bool has_aligned_nodes(const Shape& shape) {
  if (!has_equal_nodes(shape) || !std::has_single_bit(shape.levels->nodes.front().size())) return false;
  int next = 0;
  for (const auto& members : shape.levels->nodes) {
    for (const int member : members) {
      if (member != next++) return false;
    }
  }
  return true;
}

// Returns the blocks of some members, numbered in the order of the members.
inline Blocks blocks_of(const Blocks& all, const std::vector<int>& members) {
  std::vector<std::size_t> offsets;
  std::vector<std::size_t> counts;
  for (const int member : members) {
    offsets.push_back(all.offset(member));
    counts.push_back(all.count(member));
  }
  return Blocks::placed(offsets, counts);
}

// Lists the leaders: the first member of each node, but the root on the root's node.
struct Leaders {
  Leaders(const Shape& shape, int root) : me(shape, shape.index), top(shape, root) {
    std::vector<int> leaders;
    leaders.reserve(me.nodes.size());
    for (int node = 0; node < me.all_nodes(); ++node) leaders.push_back(leader_of(node));
    all = Group(std::move(leaders), shape.index);
  }
  // Return the leader of a node: its number within the node, and its index.
  int local_leader(int node) const { return node == top.node ? top.local : 0; }
  int leader_of(int node) const {
    return me.nodes[static_cast<std::size_t>(node)][static_cast<std::size_t>(local_leader(node))];
  }
  // Return the shape among the members of my node, and among the leaders, with a root that leads.
  Shape in_node(std::size_t count) const {
    Shape shape = me.in_node(count);
    shape.root = local_leader(me.node);
    return shape;
  }
  Shape among(std::size_t count) const {
    Shape shape = me.on_rail(count);
    shape.root = top.node;
    return shape;
  }
  // Returns the schedule for the leaders; it is empty on other members.
  Schedule if_leader(Schedule schedule) const { return all.contains_me() ? on(all, std::move(schedule)) : Schedule{}; }

  NodePosition me;
  NodePosition top;
  Group all{{}, 0};
};

}  // namespace lockstep
