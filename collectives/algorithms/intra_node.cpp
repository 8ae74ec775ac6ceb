// SPDX-License-Identifier: Apache-2.0
// Lets members of a node meet in the memory that they share, so that only data for other nodes are messages. Rail l is
// the l-th members of all nodes. With 2 nodes of 2, members 0 1 | 2 3 and rails 0 2, 1 3, data move as follows.
//
//   `node_*`, all-reduce   In the nodes, halves a b of their sums go:   a to 0, b to 1 | a to 2, b to 3.
//                          On the rails, halves of the whole sum go:    a of 0 and 2, b of 1 and 3.
//                          In the nodes, both halves go to all:         a b of 0 and 1 | a b of 2 and 3.
//   `node_hierarchical_*`  The same happens, but on the rails first within each rack, and so on.
//   `all-gather`           On the rails:                                0 2 | 1 3 | 0 2 | 1 3.
//                          In the nodes, the rails of the others follow.
//   `reduce-scatter`       The same goes backwards, with sums.
//   `all-to-all`           In the nodes, all members see all inputs. On rails, each end sends the other its blocks.
//
// Nodes may have different numbers of members. There are as many rails as the smallest node has members. A member on no
// rail gives and takes in its node only. Algorithms in which one member of each node sends are in
// intra_node_leaders.cpp.
#include <algorithm>
#include <array>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/halving.hpp"
#include "collectives/algorithms/intra_node.hpp"
#include "collectives/algorithms/parts.hpp"
#include "collectives/algorithms/shared.hpp"

namespace lockstep {
namespace {

using Build = Schedule (*)(const Shape&);
using Price = Cost (*)(const Shape&);

int rails_of(const Nodes& nodes) {
  int least = count_of(nodes.front());
  for (const auto& members : nodes) least = std::min(least, count_of(members));
  return least;
}

// Returns blocks for the members of a node: member l gets the data of rail l, and members on no rail get nothing.
Blocks for_rails(std::size_t count, int rails, int members) {
  Blocks split = Blocks::split(count, rails);
  if (rails == members) return split;
  std::vector<std::size_t> counts(static_cast<std::size_t>(members), 0);
  for (int rail = 0; rail < rails; ++rail) counts[static_cast<std::size_t>(rail)] = split.count(rail);
  return Blocks::packed(counts);
}

// Combines my node's data, and gives the members on the rails their parts of the sums.
Schedule sums_of_node(const NodePosition& me, const Slice& all, const Blocks& blocks, int rails) {
  const Slice mine = blocks.slice(Space::output, me.local);
  if (rails == 1) return only(in_node(me, Collective::reduce, all, mine));
  IntraNodeStep node_step = in_node(me, Collective::reduce_scatter_v, all, mine);
  node_step.blocks = blocks;
  return only(std::move(node_step));
}

// Sends the rails' results to all members of my node.
Schedule to_all_of_node(const NodePosition& me, std::size_t count, const Blocks& blocks, int rails) {
  const Slice mine = blocks.slice(Space::output, me.local);
  if (me.members() == 1) return {};
  if (rails == 1) return only(in_node(me, Collective::broadcast, mine, output(0, count)));
  IntraNodeStep node_step = in_node(me, Collective::all_gather_v, mine, output(0, count));
  node_step.blocks = blocks;
  return only(std::move(node_step));
}

template <Build rail>
Schedule node_all_reduce(const Shape& shape) {
  const NodePosition me(shape, shape.index);
  const int rails = rails_of(me.nodes);
  const Blocks blocks = for_rails(shape.count, rails, me.members());
  const Slice mine = blocks.slice(Space::output, me.local);
  Schedule all = sums_of_node(me, input(0, shape.count), blocks, rails);
  if (me.local < rails)
    all = then(std::move(all), on(me.rail_group(), within(mine, of_result(rail(me.on_rail(mine.count))))));
  return then(std::move(all), to_all_of_node(me, shape.count, blocks, rails));
}

// Returns the cost on the rails; members of a node exchange no message.
template <Price rail>
Cost cost_of_rails(const Shape& shape) {
  const NodePosition any(shape, 0);
  const Blocks split = Blocks::split(shape.count, rails_of(any.nodes));
  Cost cost = rail(any.on_rail(split.largest()));
  cost.sent_total = rail(any.on_rail(shape.count)).sent_total;
  return cost;
}

// Each node's block of my rail comes around; then all rails of each node come, in my node's memory.
template <Schedule (*gather)(const Shape&, const Blocks&)>
Schedule rails_all_gather(const Shape& shape) {
  const NodePosition me(shape, shape.index);
  const Group rail = me.rail_group();
  ScheduleBuilder own;
  own.round().copy(shape.output_blocks.slice(Space::output, shape.index),
                   input(0, shape.output_blocks.count(shape.index)));
  Schedule all = then(own.done(), on(rail, gather(me.on_rail(0), blocks_of(shape.output_blocks, rail.ranks()))));
  ScheduleBuilder node;
  node.round();
  for (const auto& members : me.nodes) {
    const Slice mine = shape.output_blocks.slice(Space::output, members[static_cast<std::size_t>(me.local)]);
    IntraNodeStep node_step = in_node(me, Collective::all_gather_v, mine, output(0, shape.output_blocks.extent()));
    node_step.blocks = blocks_of(shape.output_blocks, members);
    node.node_step(std::move(node_step));
  }
  return then(std::move(all), node.done());
}

Shape shape_of_rails(const Shape& shape) { return NodePosition(shape, 0).on_rail(0); }

bool has_equal_racks(const Shape& shape) { return has_neighbours(shape) && has_equal_nodes(shape_of_rails(shape)); }

bool has_equal_nodes_and_racks(const Shape& shape) { return has_equal_nodes(shape) && has_equal_racks(shape); }

bool has_aligned_racks(const Shape& shape) {
  return has_aligned_nodes(shape) && has_aligned_nodes(shape_of_rails(shape));
}

template <bool by_levels>
Cost cost_of_rails_all_gather(const Shape& shape) {
  NodePosition any(shape, 0);
  Shape rail = any.on_rail(0);
  if (!by_levels) rail.levels = nullptr;
  Cost cost{0, 0, (any.nodes.size() - 1) * shape.output_blocks.total()};
  for (any.local = 0; any.local < any.members(); ++any.local) {
    const Cost one = cost_of_gather_by_levels(rail, blocks_of(shape.output_blocks, any.rail_group().ranks()));
    cost.rounds = one.rounds;
    cost.sent_most = std::max(cost.sent_most, one.sent_most);
  }
  return cost;
}

// Computes my node's sums for each node, and gives each block to the member here that is on its rail, one after another
// in scratch. Then each rail adds up its nodes' sums.
template <Schedule (*scatter)(const Slice&, const Shape&, const Blocks&)>
Schedule rails_reduce_scatter(const Shape& shape) {
  const NodePosition me(shape, shape.index);
  const Group rail = me.rail_group();
  const Blocks theirs = blocks_of(shape.input_blocks, rail.ranks());
  std::vector<std::size_t> counts;
  counts.reserve(me.nodes.size());
  for (int node = 0; node < me.all_nodes(); ++node) counts.push_back(theirs.count(node));
  const Blocks sums = Blocks::packed(counts);
  ScheduleBuilder node;
  node.round();
  for (int other = 0; other < me.all_nodes(); ++other) {
    IntraNodeStep node_step = in_node(me, Collective::reduce_scatter_v, input(0, shape.input_blocks.extent()),
                                      sums.slice(Space::scratch, other));
    node_step.blocks = blocks_of(shape.input_blocks, me.nodes[static_cast<std::size_t>(other)]);
    node.node_step(std::move(node_step));
  }
  Schedule across = scatter(output(0, sums.count(me.node)), me.on_rail(0), sums);
  const std::size_t at = sums.total();
  across = moved(std::move(across), Space::scratch, Space::scratch, at);
  across = moved(std::move(across), Space::input, Space::scratch, 0);
  return then(node.done(), on(rail, std::move(across)));
}

template <bool by_levels>
Cost cost_of_rails_reduce_scatter(const Shape& shape) {
  NodePosition any(shape, 0);
  Shape rail = any.on_rail(0);
  if (!by_levels) rail.levels = nullptr;
  Cost cost{0, 0, (any.nodes.size() - 1) * shape.input_blocks.total()};
  for (any.local = 0; any.local < any.members(); ++any.local) {
    const Cost one = cost_of_reduce_scatter_by_levels(rail, blocks_of(shape.input_blocks, any.rail_group().ranks()));
    cost.rounds = one.rounds;
    cost.sent_most = std::max(cost.sent_most, one.sent_most);
  }
  return cost;
}

// All members of a node see all its inputs. Rail l carries the blocks of my whole node for the l-th members of other
// nodes. With 2 nodes of 2, member 0 sends to 2: 0->2 1->2.
template <bool by_levels>
Schedule rails_all_to_all(const Shape& shape) {
  const NodePosition me(shape, shape.index);
  const std::size_t each = shape.count;
  const std::size_t whole = static_cast<std::size_t>(shape.size) * each;
  const auto members = static_cast<std::size_t>(me.members());
  const Slice packed = scratch(members * whole, whole);  // by node and giver
  const Slice come = scratch(packed.offset + whole, whole);
  const auto given = [&](std::size_t mate, int to) {
    return scratch(mate * whole + static_cast<std::size_t>(to) * each, each);
  };
  const auto of_node = [&](const Slice& all, int node) {
    return scratch(all.offset + static_cast<std::size_t>(node) * members * each, members * each);
  };
  IntraNodeStep node_step = in_node(me, Collective::all_gather_v, input(0, whole), scratch(0, members * whole));
  node_step.blocks = Blocks::even(whole, me.members());
  ScheduleBuilder rails;
  rails.round().node_step(std::move(node_step)).round();
  const auto for_all = [&](const auto& act) {
    for (int node = 0; node < me.all_nodes(); ++node) {
      for (std::size_t mate = 0; mate < members; ++mate) act(node, mate, me.nodes[static_cast<std::size_t>(node)]);
    }
  };
  for_all([&](int node, std::size_t mate, const std::vector<int>& theirs) {
    const Slice block = given(mate, theirs[static_cast<std::size_t>(me.local)]);
    const Slice place = scratch(of_node(packed, node).offset + mate * each, each);
    const bool is_own = node == me.node && !by_levels;
    rails.copy(is_own ? shape.output_blocks.slice(Space::output, theirs[mate]) : place, block);
  });
  Schedule across;
  if (by_levels) {
    across = all_to_all_by_levels(me.on_rail(members * each), packed, come, come.offset + whole);
  } else {
    ScheduleBuilder messages;
    messages.round();
    for (int node = 0; node < me.all_nodes(); ++node) {
      if (node != me.node) messages.send(node, of_node(packed, node)).receive(node, of_node(come, node));
    }
    across = messages.done();
  }
  ScheduleBuilder end;
  end.round();
  for_all([&](int node, std::size_t mate, const std::vector<int>& theirs) {
    if (node != me.node || by_levels)
      end.copy(shape.output_blocks.slice(Space::output, theirs[mate]),
               scratch(of_node(come, node).offset + mate * each, each));
  });
  return then(then(rails.done(), on(me.rail_group(), std::move(across))), end.done());
}

template <bool by_levels>
Cost cost_of_rails_all_to_all(const Shape& shape) {
  const NodePosition any(shape, 0);
  const auto members = static_cast<std::size_t>(any.members());
  Shape rail = any.on_rail(members * shape.count);
  if (!by_levels) rail.levels = nullptr;
  const Cost far = cost_of_all_to_all_by_levels(rail);
  return {far.rounds, far.sent_most, members * far.sent_total};
}

constexpr AlgorithmProperties intra_node_plain{.node = true};
constexpr AlgorithmProperties intra_node_apart{.node = true, .apart = true};
constexpr AlgorithmProperties intra_node_once{.once = true, .node = true};
constexpr AlgorithmProperties intra_node_balanced{.order = true, .balanced = true, .node = true};
constexpr AlgorithmProperties intra_node_balanced_once{.order = true, .balanced = true, .once = true, .node = true};

constexpr std::array<Algorithm, 19> intra_node_table = {{
    {Collective::all_reduce, "node_ring", node_all_reduce<ring_all_reduce>, cost_of_rails<cost_of_ring_all_reduce>,
     intra_node_once, has_neighbours},
    {Collective::all_reduce, "node_doubling", node_all_reduce<recursive_doubling_all_reduce>,
     cost_of_rails<cost_of_recursive_doubling>, intra_node_plain, has_neighbours},
    {Collective::all_reduce, "node_halving", node_all_reduce<balanced_halving_all_reduce>,
     cost_of_rails<cost_of_balanced_halving>, intra_node_once, has_neighbours},
    {Collective::all_reduce, "node_balanced", node_all_reduce<balanced_halving_all_reduce>,
     cost_of_rails<cost_of_balanced_halving>, intra_node_balanced_once, has_aligned_nodes},
    {Collective::all_reduce, "node_balanced_doubling", node_all_reduce<balanced_doubling_all_reduce>,
     cost_of_rails<cost_of_balanced_doubling>, intra_node_balanced, has_aligned_nodes},
    {Collective::all_reduce, "node_hierarchical_ring", node_all_reduce<hierarchical_ring>,
     cost_of_rails<cost_of_hierarchical_ring>, intra_node_once, has_equal_racks},
    {Collective::all_reduce, "node_hierarchical_doubling", node_all_reduce<hierarchical_doubling>,
     cost_of_rails<cost_of_hierarchical_doubling>, intra_node_plain, has_equal_racks},
    {Collective::all_reduce, "node_hierarchical_balanced", node_all_reduce<hierarchical_balanced>,
     cost_of_rails<cost_of_hierarchical_balanced>, intra_node_balanced_once, has_aligned_racks},
    {Collective::all_reduce, "node_hierarchical_balanced_doubling", node_all_reduce<hierarchical_balanced_doubling>,
     cost_of_rails<cost_of_hierarchical_balanced_doubling>, intra_node_balanced, has_aligned_racks},
    {Collective::all_gather, "node_rails", rails_all_gather<ring_gather>, cost_of_rails_all_gather<false>,
     intra_node_apart, has_equal_nodes},
    {Collective::all_gather_v, "node_rails", rails_all_gather<ring_gather>, cost_of_rails_all_gather<false>,
     intra_node_plain, has_equal_nodes},
    {Collective::all_gather, "node_hierarchical", rails_all_gather<gather_by_levels>, cost_of_rails_all_gather<true>,
     intra_node_apart, has_equal_nodes_and_racks},
    {Collective::all_gather_v, "node_hierarchical", rails_all_gather<gather_by_levels>, cost_of_rails_all_gather<true>,
     intra_node_plain, has_equal_nodes_and_racks},
    {Collective::all_to_all, "node_rails", rails_all_to_all<false>, cost_of_rails_all_to_all<false>, intra_node_plain,
     has_equal_nodes},
    {Collective::all_to_all, "node_hierarchical", rails_all_to_all<true>, cost_of_rails_all_to_all<true>,
     intra_node_plain, has_equal_nodes_and_racks},
    {Collective::reduce_scatter, "node_rails", rails_reduce_scatter<ring_reduce_scatter_to>,
     cost_of_rails_reduce_scatter<false>, intra_node_apart, has_equal_nodes},
    {Collective::reduce_scatter_v, "node_rails", rails_reduce_scatter<ring_reduce_scatter_to>,
     cost_of_rails_reduce_scatter<false>, intra_node_plain, has_equal_nodes},
    {Collective::reduce_scatter, "node_hierarchical", rails_reduce_scatter<reduce_scatter_by_levels>,
     cost_of_rails_reduce_scatter<true>, intra_node_apart, has_equal_nodes_and_racks},
    {Collective::reduce_scatter_v, "node_hierarchical", rails_reduce_scatter<reduce_scatter_by_levels>,
     cost_of_rails_reduce_scatter<true>, intra_node_plain, has_equal_nodes_and_racks},
}};

}  // namespace

std::span<const Algorithm> intra_node_algorithms() { return intra_node_table; }

}  // namespace lockstep
