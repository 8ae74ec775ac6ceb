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

// Computes the trees. All rails have the same shape. Nodes have places in their rack. The tree comes in at place 0, the
// entry. The first places serve one other rack each, and the last place serves the others in a small rack. The root
// stands before all racks.
class RailTrees {
 public:
  // A node has at most `branches` children.
  RailTrees(const NodePosition& me, int root_node, int branches)
      : root_(root_node), rails_(me.members()), branches_(branches) {
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
    if (at.place > 0) return node_at(at.rack, parent_place(at), rail);
    if (at.rack == 0) return root_;
    const int above = rack_above(at.rack);
    return racks_[static_cast<std::size_t>(above)].empty() ? root_ : node_at(above, server(at.rack), rail);
  }
  // Returns the nodes that get the data of a rail from this one, those with most nodes behind them first.
  std::vector<int> children(int node, int rail) const {
    std::vector<int> all;
    if (node == root_ && !racks_.front().empty()) return {entry(0, rail)};
    const TreePlace at = node == root_ ? TreePlace{0, 0} : place_of(node, rail);
    const int first = at.rack * branches_ + 1;
    for (int rack = first; rack < std::min(racks(), first + branches_); ++rack) {
      if (server(rack) == at.place) all.push_back(entry(rack, rail));
    }
    const int size = count_of(racks_[static_cast<std::size_t>(at.rack)]);
    const int begin = first_child(at);
    const int end = std::min(size, begin + children_in_rack(at));
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
      for (int place = 0; place < std::min(size, branches_ + 1); ++place)
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
  int rack_above(int rack) const { return (rack - 1) / branches_; }
  // Returns the place in the rack above that serves this rack: its first places serve one each.
  int server(int rack) const {
    const int last = count_of(racks_[static_cast<std::size_t>(rack_above(rack))]) - 1;
    return std::min((rack - 1) % branches_, std::max(0, last));
  }
  // Returns the number of children in the rack of a node there. It has one less if it serves another rack.
  int children_in_rack(const TreePlace& at) const {
    const bool serves = at.place < branches_ && at.rack * branches_ + 1 + at.place < racks();
    return branches_ - (serves ? 1 : 0);
  }
  // Returns the first child of a place in its rack. Children follow each other in the order of their parents.
  int first_child(const TreePlace& at) const {
    int first = 1;
    for (int place = 0; place < std::min(at.place, branches_); ++place) first += children_in_rack({at.rack, place});
    return first + std::max(0, at.place - branches_) * branches_;
  }
  int parent_place(const TreePlace& at) const {
    int parent = 0;
    while (first_child({at.rack, parent + 1}) <= at.place) ++parent;
    return parent;
  }
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

// In a broadcast, a member sends each segment to all its children while it copies for itself. With two children it
// keeps pace with its link. In a reduce the members of a node add up first, and more children make fewer levels.
constexpr int broadcast_branches = 2;
int reduce_branches(const NodePosition& me) { return me.members() / 2; }

// With fewer rails the trees are chains.
bool has_trees(const Shape& shape) { return has_equal_nodes(shape) && shape.levels->nodes.front().size() >= 4; }

IntraNodeStep with_blocks(IntraNodeStep node_step, const Blocks& blocks) {
  node_step.blocks = blocks;
  return node_step;
}

Schedule trees_broadcast(const Shape& shape) {
  const NodePosition me(shape, shape.index);
  const NodePosition top(shape, shape.root);
  const RailTrees trees(me, top.node, broadcast_branches);
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
  const RailTrees trees(me, top.node, reduce_branches(me));
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
  const RailTrees trees(top, top.node, reduces ? reduce_branches(top) : broadcast_branches);
  const std::size_t slice = Blocks::split(shape.count, top.members()).largest();
  return {trees.depth(), (reduces ? 1 : trees.most_children()) * slice,
          static_cast<std::size_t>(top.all_nodes() - 1) * shape.count};
}

constexpr std::array<Algorithm, 2> node_trees_table = {{
    {Collective::broadcast,
     "node_trees",
     trees_broadcast,
     cost_of_trees<false>,
     {.node = true, .flows = true},
     has_trees},
    {Collective::reduce, "node_trees", trees_reduce, cost_of_trees<true>, {.node = true}, has_trees},
}};

}  // namespace

std::span<const Algorithm> node_tree_algorithms() { return node_trees_table; }

}  // namespace lockstep
