// SPDX-License-Identifier: Apache-2.0
// Passes data through nodes along as many trees as a node has members. Rail r is the r-th members of all nodes, and has
// a tree for its part of the data. A node has children in the trees of some rails, and none in those of the others. So
// each node sends everything about once, and few messages follow each other. With 9 nodes of 4 and root 0:
//
//   rail 0   0 -> 1,  1 -> 2 3,  2 -> 4 5,  3 -> 6 7,  4 -> 8        rail 1   0 -> 3,  3 -> 4 5,  4 -> 6 7,  and so on
//
// A broadcast scatters data among the members of the root's node, and every node gathers them in the end. If nodes are
// in racks, a tree enters each rack once. A reduce goes backwards, with sums. Both are meant for segments that follow
// each other.
#include <algorithm>
#include <array>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/intra_node.hpp"

namespace lockstep {
namespace {

// Computes the trees, whose shape is the same for all rails. Nodes have places in their rack; place 0 is the entry, by
// which the tree comes in. The root stands before all racks.
class RailTrees {
 public:
  RailTrees(const NodePosition& me, int root_node) : root_(root_node), rails_(me.members()), branches_(rails_ / 2) {
    const int nodes = me.all_nodes();
    std::vector<std::vector<int>> racks;
    if (me.above != nullptr) racks = me.above->nodes;
    if (racks.empty()) {
      racks.emplace_back(static_cast<std::size_t>(nodes));
      for (int node = 0; node < nodes; ++node) racks[0][static_cast<std::size_t>(node)] = node;
    }
    const auto first = std::ranges::find_if(racks, [&](const auto& rack) { return position_in(rack, root_) >= 0; });
    std::rotate(racks.begin(), first, racks.end());
    std::erase(racks.front(), root_);
    racks_ = std::move(racks);
  }

  // Returns the node from which this one gets the data of a rail; -1 for the root.
  int parent(int node, int rail) const {
    if (node == root_) return -1;
    const TreePlace at = place_of(node, rail);
    if (at.place > 0)
      return node_at(at.rack, (at.place <= branches(at.rack) ? 0 : 1 + (at.place - branches(at.rack) - 1) / branches_),
                     rail);
    return at.rack == 0 ? root_ : entry((at.rack - 1) / rack_branches(), rail);
  }
  // Returns the nodes that get the data of a rail from this one, those with most nodes behind them first.
  std::vector<int> children(int node, int rail) const {
    std::vector<int> all;
    if (node == root_ && !racks_.front().empty()) return {entry(0, rail)};
    const TreePlace at = node == root_ ? TreePlace{0, 0} : place_of(node, rail);
    if (at.place == 0) {
      for (int i = 0; i < rack_children(at.rack); ++i) all.push_back(entry(at.rack * rack_branches() + 1 + i, rail));
    }
    const int size = count_of(racks_[static_cast<std::size_t>(at.rack)]);
    const int begin = at.place == 0 ? 1 : branches(at.rack) + (at.place - 1) * branches_ + 1;
    const int end = std::min(size, begin + (at.place == 0 ? branches(at.rack) : branches_));
    for (int place = begin; place < end; ++place) all.push_back(node_at(at.rack, place, rail));
    return all;
  }
  // Returns the number of messages that follow each other.
  std::size_t depth() const {
    std::size_t most = 0;
    for (int rack = 0; rack < racks(); ++rack) {
      const int size = count_of(racks_[static_cast<std::size_t>(rack)]);
      std::size_t levels = 0;
      int last = size > 0 ? node_at(rack, size - 1, 0) : root_;
      for (; last != root_; last = parent(last, 0)) ++levels;
      most = std::max(most, levels);
    }
    return most;
  }
  // Returns the largest number of children.
  std::size_t most_children() const {
    std::size_t most = children(root_, 0).size();
    for (int rack = 0; rack < racks(); ++rack) {
      const int size = count_of(racks_[static_cast<std::size_t>(rack)]);
      for (int place = 0; place < std::min(size, 2); ++place)
        most = std::max(most, children(node_at(rack, place, 0), 0).size());
    }
    return most;
  }

 private:
  struct TreePlace {
    int rack;
    int place;
  };
  static int position_in(const std::vector<int>& nodes, int node) { return NodePosition::position(nodes, node); }
  int racks() const { return static_cast<int>(racks_.size()); }
  int rack_branches() const { return std::max(1, branches_ / 2); }
  // Returns the number of racks that get data from this one.
  int rack_children(int rack) const { return std::clamp(racks() - (rack * rack_branches() + 1), 0, rack_branches()); }
  // Returns the number of children of the entry in its rack. It has fewer, as it serves other racks as well.
  int branches(int rack) const { return std::max(1, branches_ - rack_children(rack)); }
  // Rails begin at different nodes of a rack, so that all nodes pass on equally much.
  int shift(int rack, int rail) const {
    return static_cast<int>(static_cast<long long>(rail) * count_of(racks_[static_cast<std::size_t>(rack)]) / rails_);
  }
  int node_at(int rack, int place, int rail) const {
    const auto& nodes = racks_[static_cast<std::size_t>(rack)];
    return nodes[static_cast<std::size_t>(wrap(place + shift(rack, rail), count_of(nodes)))];
  }
  int entry(int rack, int rail) const {
    return racks_[static_cast<std::size_t>(rack)].empty() ? root_ : node_at(rack, 0, rail);
  }
  TreePlace place_of(int node, int rail) const {
    int rack = 0;
    int position = -1;
    while ((position = position_in(racks_[static_cast<std::size_t>(rack)], node)) < 0) ++rack;
    return {rack, wrap(position - shift(rack, rail), count_of(racks_[static_cast<std::size_t>(rack)]))};
  }

  int root_;
  int rails_;
  int branches_;
  std::vector<std::vector<int>> racks_;  // the root's first, without the root
};

// With fewer rails the trees are chains.
bool has_trees(const Shape& shape) { return has_equal_nodes(shape) && shape.levels->nodes.front().size() >= 4; }

IntraNodeStep with_blocks(IntraNodeStep node_step, const Blocks& blocks) {
  node_step.blocks = blocks;
  return node_step;
}

Schedule trees_broadcast(const Shape& shape) {
  const NodePosition me(shape, shape.index);
  const NodePosition top(shape, shape.root);
  const RailTrees trees(me, top.node);
  const Blocks blocks = Blocks::split(shape.count, me.members());
  const Slice mine = blocks.slice(Space::output, me.local);
  const Slice given = input(0, shape.index == shape.root ? shape.count : 0);
  Schedule all;
  if (me.node == top.node) all = only(with_blocks(in_node(me, Collective::scatter_v, given, mine, top.local), blocks));
  ScheduleBuilder rail;
  rail.round();
  if (me.node != top.node) rail.receive(trees.parent(me.node, me.local), mine).round();
  for (const int child : trees.children(me.node, me.local)) rail.send(child, mine);
  all = then(std::move(all), on(me.rail_group(), rail.done()));
  return then(std::move(all),
              only(with_blocks(in_node(me, Collective::all_gather_v, mine, output(0, shape.count)), blocks)));
}

// Only the root has an output. Sums lie at the beginning of scratch, and those of the children behind them.
Schedule trees_reduce(const Shape& shape) {
  const NodePosition me(shape, shape.index);
  const NodePosition top(shape, shape.root);
  const RailTrees trees(me, top.node);
  const Blocks blocks = Blocks::split(shape.count, me.members());
  const std::size_t count = blocks.count(me.local);
  const Slice sum = scratch(0, count);
  Schedule all = only(with_blocks(in_node(me, Collective::reduce_scatter_v, input(0, shape.count), sum), blocks));
  ScheduleBuilder rail;
  rail.round();
  std::size_t come = 0;
  for (const int child : trees.children(me.node, me.local)) {
    const Slice theirs = scratch(++come * count, count);
    rail.receive(child, theirs).reduce(sum, sum, theirs);
  }
  if (me.node != top.node) rail.round().send(trees.parent(me.node, me.local), sum);
  all = then(std::move(all), on(me.rail_group(), rail.done()));
  if (me.node != top.node) return all;
  const Slice result = output(0, shape.index == shape.root ? shape.count : 0);
  return then(std::move(all), only(with_blocks(in_node(me, Collective::gather_v, sum, result, top.local), blocks)));
}

template <bool reduces>
Cost cost_of_trees(const Shape& shape) {
  const NodePosition top(shape, shape.root);
  const RailTrees trees(top, top.node);
  const std::size_t slice = Blocks::split(shape.count, top.members()).largest();
  return {trees.depth(), (reduces ? 1 : trees.most_children()) * slice,
          static_cast<std::size_t>(top.all_nodes() - 1) * shape.count};
}

constexpr std::array<Algorithm, 2> node_trees_table = {{
    {Collective::broadcast, "node_trees", trees_broadcast, cost_of_trees<false>, {.node = true}, has_trees},
    {Collective::reduce, "node_trees", trees_reduce, cost_of_trees<true>, {.node = true}, has_trees},
}};

}  // namespace

std::span<const Algorithm> node_tree_algorithms() { return node_trees_table; }

}  // namespace lockstep
