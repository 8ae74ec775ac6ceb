// SPDX-License-Identifier: Apache-2.0
// Treats members of one node and members of different nodes differently. Rail l is the l-th members of all nodes. With
// 2 nodes of 2, members 0 1 | 2 3 and rails 0 2, 1 3, data move as follows.
//
//   `hierarchical`, all-reduce   In the nodes, halves a b of their sums go:   a to 0, b to 1 | a to 2, b to 3.
//                                On the rails, halves of the whole sum go:    a of 0 and 2, b of 1 and 3.
//                                In the nodes, both halves go to all:         a b of 0 and 1 | a b of 2 and 3.
//   `leaders`                    The sums of the nodes go to 0 and 2, then among these, and then to all.
//
// As little as possible crosses the network. In `hierarchical`, all members of a node send it together. If nodes are in
// racks, the rails, and the leaders, do the same once more, and so on. Collectives of blocks are in
// hierarchical_blocks.cpp.
#include <algorithm>
#include <array>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/halving.hpp"
#include "collectives/algorithms/node_position.hpp"
#include "collectives/algorithms/parts.hpp"
#include "collectives/algorithms/shared.hpp"

namespace lockstep {
namespace {

using Build = Schedule (*)(const Shape&);
using Price = Cost (*)(const Shape&);
using ShapePredicate = bool (*)(const Shape&);

Schedule rail_all_reduce(const NodePosition& me, Build build, const Slice& mine) {
  return on(me.rail_group(), within(mine, of_result(build(me.on_rail(mine.count)))));
}

// Works on a rail by levels again, if there are more levels.
template <Build flat, Build levels, ShapePredicate suits>
Schedule by_levels(const Shape& shape) {
  return suits(shape) ? levels(shape) : flat(shape);
}

// Combines by the halves of the balanced tree in the nodes.
template <Build rail, ShapePredicate suits>
Schedule halving(const Shape& shape) {
  const NodePosition me(shape, shape.index);
  const Blocks blocks = Blocks::split(shape.count, me.members());
  const HalvingSteps steps = balanced_steps(me.local, blocks);
  const Slice mine = blocks.slice(Space::output, balanced_block(me.local, me.members()));
  ScheduleBuilder sums;
  reduce_by_halves(sums, steps, me.local, {Space::input}, {Space::output}, 0);
  ScheduleBuilder gather;
  gather_back(gather, steps);
  Schedule across = rail_all_reduce(me, by_levels<rail, halving<rail, suits>, suits>, mine);
  return then(then(on(me.node_group(), sums.done()), std::move(across)), on(me.node_group(), gather.done()));
}

// All nodes do an all-reduce of everything at the same time. In the middle of it, every rail does one of its slice.
template <Price node_price, Price rail, ShapePredicate suits>
Cost cost_of_hierarchical(const Shape& shape) {
  const NodePosition any(shape, 0);
  const Price across = suits(any.on_rail(0)) ? cost_of_hierarchical<node_price, rail, suits> : rail;
  const Cost in_node = node_price(any.in_node(shape.count));
  const Cost slice = across(any.on_rail(Blocks::split(shape.count, any.members()).largest()));
  const Cost slices = across(any.on_rail(shape.count));
  return {in_node.rounds + slice.rounds, in_node.sent_most + slice.sent_most,
          static_cast<std::size_t>(any.all_nodes()) * in_node.sent_total + slices.sent_total};
}

Schedule leaders_all_reduce(const Shape& shape) {
  const Leaders leaders(shape, shape.levels->nodes.front().front());
  const Shape node = leaders.in_node(shape.count);
  const Group group = leaders.me.node_group();
  Schedule up = on(group, binomial_reduce_to(output(0, shape.count), scratch(0, shape.count), node));
  Schedule across = leaders.if_leader(of_result(recursive_doubling_all_reduce(leaders.among(shape.count))));
  return then(then(std::move(up), std::move(across)), on(group, of_result(binomial_broadcast(node))));
}

// Only the root has an output; the others' sums lie at the beginning of scratch.
Schedule leaders_reduce(const Shape& shape) {
  const bool is_root = shape.index == shape.root;
  const Slice sum{is_root ? Space::output : Space::scratch, 0, shape.count};
  const Slice incoming = scratch(is_root ? 0 : shape.count, shape.count);
  return reduce_by_levels(sum, incoming, shape);
}

// The members of a node come to their leader, the leaders hear of each other, and each lets its members go.
Schedule leaders_barrier(const Shape& shape) {
  const Leaders leaders(shape, shape.levels->nodes.front().front());
  const NodePosition& me = leaders.me;
  const Slice presence = input(0, 1);
  ScheduleBuilder up;
  ScheduleBuilder across;
  ScheduleBuilder down;
  std::size_t heard = 0;
  up.round();
  down.round();
  for (int local = me.local == 0 ? 1 : me.members(); local < me.members(); ++local) {
    up.receive(local, scratch(heard++, 1));
    down.send(local, presence);
  }
  if (me.local > 0) {
    up.send(0, presence);
    down.receive(0, scratch(0, 1));
  }
  const Shape among = leaders.among(0);
  for (int reach = 1; reach < among.size; reach *= 2)
    across.round().send(among.next(reach), presence).receive(among.before(reach), scratch(heard++, 1));
  return then(then(on(me.node_group(), up.done()), leaders.if_leader(across.done())), on(me.node_group(), down.done()));
}

// Returns the number of rounds of a binomial tree in the largest node.
std::size_t deepest(const Shape& shape) {
  int most = 0;
  for (const auto& members : shape.levels->nodes) most = std::max(most, doublings(count_of(members)));
  return static_cast<std::size_t>(most);
}

std::size_t other_members(const Shape& shape) { return static_cast<std::size_t>(shape.size - 1); }

// Returns the number of children of a leader in its node: the number of doublings that reach around the node.
std::size_t children_on_node(const NodePosition& any, int node) {
  return static_cast<std::size_t>(doublings(count_of(any.nodes[static_cast<std::size_t>(node)])));
}

// The number of rounds is exact if the nodes are equal. Leaders of folded pairs send different amounts.
Cost cost_of_leaders_all_reduce(const Shape& shape) {
  const NodePosition any(shape, 0);
  const Folding folding(any.all_nodes());
  const Cost among = cost_of_recursive_doubling(any.on_rail(shape.count));
  Cost cost{2 * deepest(shape) + among.rounds, 0, among.sent_total};
  for (int node = 0; node < folding.size; ++node) {
    const std::size_t members = any.nodes[static_cast<std::size_t>(node)].size();
    std::size_t messages = children_on_node(any, node) + (folding.is_paired(node) ? 1 : 0);
    if (folding.works(node)) messages += folding.rounds();
    cost.sent_most = std::max({cost.sent_most, messages * shape.count, members > 1 ? shape.count : 0});
    cost.sent_total += 2 * (members - 1) * shape.count;
  }
  return cost;
}

// Returns how often a member sends in a broadcast by levels.
std::size_t sends_by_levels(const Shape& shape, int member) {
  const int from_root = wrap(static_cast<long long>(member) - shape.root, shape.size);
  if (!has_nodes(shape)) return static_cast<std::size_t>(binomial_children(from_root, shape.size));
  const NodePosition me(shape, member);
  const NodePosition top(shape, shape.root);
  Shape node = me.in_node(shape.count);
  node.root = me.node == top.node ? top.local : 0;
  Shape among = top.on_rail(shape.count);
  among.root = top.node;
  const std::size_t node_sends = sends_by_levels(node, me.local);
  return node_sends + (me.local == node.root ? sends_by_levels(among, me.node) : 0);
}

Cost cost_of_leaders_reduce(const Shape& shape) {
  return {rounds_by_levels(shape), shape.count, other_members(shape) * shape.count};
}

Cost cost_of_leaders_barrier(const Shape& shape) {
  const auto rounds = static_cast<std::size_t>(doublings(static_cast<int>(shape.levels->nodes.size())));
  Cost cost{rounds, 0, shape.levels->nodes.size() * rounds};
  for (const auto& members : shape.levels->nodes) {
    cost.sent_most = std::max(cost.sent_most, rounds + members.size() - 1);
    cost.sent_total += 2 * (members.size() - 1);
    if (members.size() > 1) cost.rounds = rounds + 2;
  }
  return cost;
}

constexpr AlgorithmProperties balanced_groups{.order = true, .balanced = true};
constexpr AlgorithmProperties balanced_groups_once{.order = true, .balanced = true, .once = true};

constexpr std::array<Algorithm, 8> hierarchical_table = {{
    {Collective::all_reduce,
     "hierarchical_ring",
     hierarchical_ring,
     cost_of_hierarchical_ring,
     {.once = true},
     has_equal_nodes},
    {Collective::all_reduce,
     "hierarchical_doubling",
     hierarchical_doubling,
     cost_of_hierarchical_doubling,
     {},
     has_equal_nodes},
    {Collective::all_reduce, "hierarchical_balanced", hierarchical_balanced, cost_of_hierarchical_balanced,
     balanced_groups_once, has_aligned_nodes},
    {Collective::all_reduce, "hierarchical_balanced_doubling", hierarchical_balanced_doubling,
     cost_of_hierarchical_balanced_doubling, balanced_groups, has_aligned_nodes},
    {Collective::all_reduce, "leaders", leaders_all_reduce, cost_of_leaders_all_reduce, {}, has_nodes},
    {Collective::broadcast, "leaders", broadcast_by_levels, cost_of_broadcast_by_levels, {}, has_nodes},
    {Collective::reduce, "leaders", leaders_reduce, cost_of_leaders_reduce, {}, has_nodes},
    {Collective::barrier, "leaders", leaders_barrier, cost_of_leaders_barrier, {}, has_nodes},
}};

}  // namespace

Schedule hierarchical_ring(const Shape& shape) {
  const NodePosition me(shape, shape.index);
  const Shape node = me.in_node(shape.count);
  const Blocks blocks = Blocks::split(shape.count, node.size);
  const Slice mine = blocks.slice(Space::output, me.local);
  Schedule sums = on(me.node_group(), ring_reduce_scatter_to(mine, node, blocks));
  Schedule across = rail_all_reduce(me, by_levels<ring_all_reduce, hierarchical_ring, has_equal_nodes>, mine);
  return then(then(std::move(sums), std::move(across)), on(me.node_group(), ring_gather(node, blocks)));
}

Schedule hierarchical_doubling(const Shape& shape) {
  return halving<recursive_doubling_all_reduce, has_equal_nodes>(shape);
}

Schedule hierarchical_balanced(const Shape& shape) {
  return halving<balanced_halving_all_reduce, has_aligned_nodes>(shape);
}

Schedule hierarchical_balanced_doubling(const Shape& shape) {
  return halving<balanced_doubling_all_reduce, has_aligned_nodes>(shape);
}

Cost cost_of_hierarchical_ring(const Shape& shape) {
  return cost_of_hierarchical<cost_of_ring_all_reduce, cost_of_ring_all_reduce, has_equal_nodes>(shape);
}

Cost cost_of_hierarchical_doubling(const Shape& shape) {
  return cost_of_hierarchical<cost_of_balanced_halving, cost_of_recursive_doubling, has_equal_nodes>(shape);
}

Cost cost_of_hierarchical_balanced(const Shape& shape) {
  return cost_of_hierarchical<cost_of_balanced_halving, cost_of_balanced_halving, has_aligned_nodes>(shape);
}

Cost cost_of_hierarchical_balanced_doubling(const Shape& shape) {
  return cost_of_hierarchical<cost_of_balanced_halving, cost_of_balanced_doubling, has_aligned_nodes>(shape);
}

Schedule broadcast_by_levels(const Shape& shape) {
  if (!has_nodes(shape)) return binomial_broadcast(shape);
  const Leaders leaders(shape, shape.root);
  Schedule node_part = on(leaders.me.node_group(), of_result(binomial_broadcast(leaders.in_node(shape.count))));
  return then(leaders.if_leader(broadcast_by_levels(leaders.among(shape.count))), std::move(node_part));
}

std::size_t rounds_by_levels(const Shape& shape) {
  if (!has_nodes(shape)) return static_cast<std::size_t>(doublings(shape.size));
  return deepest(shape) + rounds_by_levels(NodePosition(shape, 0).on_rail(0));
}

Cost cost_of_broadcast_by_levels(const Shape& shape) {
  Cost cost{rounds_by_levels(shape), 0, other_members(shape) * shape.count};
  if (!has_nodes(shape)) return {cost.rounds, sends_by_levels(shape, shape.root) * shape.count, cost.sent_total};
  const NodePosition top(shape, shape.root);
  for (int node = 0; node < top.all_nodes(); ++node) {  // the member that sends most of each node
    const int leader = node == top.node ? shape.root : top.nodes[static_cast<std::size_t>(node)].front();
    cost.sent_most = std::max(cost.sent_most, sends_by_levels(shape, leader) * shape.count);
  }
  return cost;
}

Schedule reduce_by_levels(const Slice& sum, const Slice& incoming, const Shape& shape) {
  if (!has_nodes(shape)) return binomial_reduce_to(sum, incoming, shape);
  const Leaders leaders(shape, shape.root);
  Schedule up = on(leaders.me.node_group(), binomial_reduce_to(sum, incoming, leaders.in_node(shape.count)));
  if (!leaders.all.contains_me()) return up;
  Schedule across = reduce_by_levels(sum, incoming, leaders.among(shape.count));
  return then(std::move(up), on(leaders.all, moved(std::move(across), Space::input, sum.space, 0)));
}

std::span<const Algorithm> hierarchical_algorithms() { return hierarchical_table; }

}  // namespace lockstep
