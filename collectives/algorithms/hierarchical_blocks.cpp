// SPDX-License-Identifier: Apache-2.0
// Treats members of one node and of different nodes differently in collectives of blocks. Rail l is all l-th members.
// With 2 nodes of 2, members 0 1 | 2 3 and rails 0 2, 1 3, blocks move as follows.
//
//   `all-gather`      On the rails:                                   0 2 | 1 3 | 0 2 | 1 3.
//                     In the nodes, the rails of the others follow.
//   `reduce-scatter`  In the nodes, the sums for their rails go:      0 2 to 0, 1 3 to 1 | 0 2 to 2, 1 3 to 3.
//                     On the rails, each member gets its own:         0 | 1 | 2 | 3.
//   `all-to-all`      In the nodes, blocks for each rail go to it:    0 1 give to 0 all for 0 2, to 1 all for 1 3.
//                     On the rails, a node's blocks are one message:  from 0 1 to 2 in one message of 0.
//
// If nodes are in racks, the rails do the same once more, and so on.
#include <algorithm>
#include <array>
#include <vector>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/node_position.hpp"
#include "collectives/algorithms/parts.hpp"

namespace lockstep {
namespace {

std::size_t members_beside(const Shape& shape) { return static_cast<std::size_t>(shape.size - 1); }

// Returns the blocks of every rail, by the rail's number.
std::vector<Blocks> by_rail(const Shape& shape, const Blocks& blocks) {
  NodePosition any(shape, 0);
  std::vector<Blocks> rails;
  for (any.local = 0; any.local < any.members(); ++any.local)
    rails.push_back(blocks_of(blocks, any.rail_group().ranks()));
  return rails;
}

Schedule all_gather(const Shape& shape) {
  ScheduleBuilder own;
  own.round().copy(shape.output_blocks.slice(Space::output, shape.index),
                   input(0, shape.output_blocks.count(shape.index)));
  return then(own.done(), gather_by_levels(shape, shape.output_blocks));
}

Cost hierarchical_blocks_cost_of_all_gather(const Shape& shape) {
  return cost_of_gather_by_levels(shape, shape.output_blocks);
}

Schedule hierarchical_blocks_reduce_scatter(const Shape& shape) {
  return reduce_scatter_by_levels(output(0, shape.input_blocks.count(shape.index)), shape, shape.input_blocks);
}

Cost hierarchical_blocks_cost_of_reduce_scatter(const Shape& shape) {
  return cost_of_reduce_scatter_by_levels(shape, shape.input_blocks);
}

Schedule all_to_all(const Shape& shape) {
  const std::size_t whole = static_cast<std::size_t>(shape.size) * shape.count;
  return all_to_all_by_levels(shape, input(0, whole), output(0, whole), 0);
}

// Sends each other member its block, all in one round.
Schedule to_each(const Shape& shape, const Slice& given, const Slice& taken) {
  const Blocks blocks = Blocks::even(shape.count, shape.size);
  const auto of = [&](const Slice& whole, int member) {
    return Slice{whole.space, whole.offset + blocks.offset(member), shape.count};
  };
  ScheduleBuilder across;
  across.round();
  for (int step = 1; step < shape.size; ++step)
    across.send(shape.next(step), of(given, shape.next(step)))
        .receive(shape.before(step), of(taken, shape.before(step)));
  across.copy(of(taken, shape.index), of(given, shape.index));
  return across.done();
}

constexpr std::array<Algorithm, 5> hierarchical_blocks_table = {{
    {Collective::all_gather,
     "hierarchical",
     all_gather,
     hierarchical_blocks_cost_of_all_gather,
     {.apart = true},
     has_equal_nodes},
    {Collective::all_gather_v, "hierarchical", all_gather, hierarchical_blocks_cost_of_all_gather, {}, has_equal_nodes},
    {Collective::reduce_scatter,
     "hierarchical",
     hierarchical_blocks_reduce_scatter,
     hierarchical_blocks_cost_of_reduce_scatter,
     {.apart = true},
     has_equal_nodes},
    {Collective::reduce_scatter_v,
     "hierarchical",
     hierarchical_blocks_reduce_scatter,
     hierarchical_blocks_cost_of_reduce_scatter,
     {},
     has_equal_nodes},
    {Collective::all_to_all, "hierarchical", all_to_all, cost_of_all_to_all_by_levels, {}, has_equal_nodes},
}};

}  // namespace

// Gathers around the ring of the rail. Then the rails go around the ring of the node: of each, every node's block.
Schedule gather_by_levels(const Shape& shape, const Blocks& blocks) {
  if (!has_equal_nodes(shape)) return ring_gather(shape, blocks);
  const NodePosition me(shape, shape.index);
  const Group rail = me.rail_group();
  Schedule across = on(rail, gather_by_levels(me.on_rail(0), blocks_of(blocks, rail.ranks())));
  const Shape node = me.in_node(0);
  ScheduleBuilder around;
  around.round(node.size - 1);
  for (const auto& members : me.nodes) {
    const Blocks theirs = blocks_of(blocks, members);
    around.send(node.next(), MovingSlice(Space::output, theirs, me.local, -1))
        .receive(node.before(), MovingSlice(Space::output, theirs, me.local - 1, -1));
  }
  return then(std::move(across), on(me.node_group(), around.done()));
}

// A member sends all blocks of its rail but the next node's, and all rails but the next one.
Cost cost_of_gather_by_levels(const Shape& shape, const Blocks& blocks) {
  const std::size_t all = blocks.total();
  if (!has_equal_nodes(shape)) return {members_beside(shape), all - blocks.smallest(), members_beside(shape) * all};
  const std::vector<Blocks> rails = by_rail(shape, blocks);
  Cost cost{0, 0, members_beside(shape) * all};
  for (std::size_t local = 0; local < rails.size(); ++local) {
    const Cost far = cost_of_gather_by_levels(NodePosition(shape, 0).on_rail(0), rails[local]);
    cost.rounds = far.rounds + rails.size() - 1;
    cost.sent_most = std::max(cost.sent_most, far.sent_most + all - rails[(local + 1) % rails.size()].total());
  }
  return cost;
}

// Computes my node's sums for my rail in scratch, a block for each node. Then each node of the rail gets its own.
Schedule reduce_scatter_by_levels(const Slice& mine, const Shape& shape, const Blocks& blocks) {
  if (!has_equal_nodes(shape)) return ring_reduce_scatter_to(mine, shape, blocks);
  const NodePosition me(shape, shape.index);
  std::vector<std::size_t> counts;
  counts.reserve(me.nodes.size());
  for (const auto& members : me.nodes) counts.push_back(blocks.count(members[static_cast<std::size_t>(me.local)]));
  const Blocks sums = Blocks::packed(counts);
  std::vector<RingPart> parts;
  parts.reserve(me.nodes.size());
  for (int node = 0; node < me.all_nodes(); ++node)
    parts.push_back({{Space::output, sums.offset(node), sums.count(node)},
                     blocks_of(blocks, me.nodes[static_cast<std::size_t>(node)])});
  Schedule node_part = ring_reduce_scatters(parts, me.in_node(0));
  node_part = moved(std::move(node_part), Space::scratch, Space::scratch, sums.total());
  node_part = moved(std::move(node_part), Space::output, Space::scratch, 0);
  Schedule far = reduce_scatter_by_levels(mine, me.on_rail(0), sums);
  far = moved(std::move(far), Space::scratch, Space::scratch, sums.total());
  far = moved(std::move(far), Space::input, Space::scratch, 0);
  return then(on(me.node_group(), std::move(node_part)), on(me.rail_group(), std::move(far)));
}

// A member sends all rails but its own, and of that rail all blocks but its own.
Cost cost_of_reduce_scatter_by_levels(const Shape& shape, const Blocks& blocks) {
  const std::size_t all = blocks.total();
  if (!has_equal_nodes(shape)) return {members_beside(shape), all - blocks.smallest(), members_beside(shape) * all};
  const std::vector<Blocks> rails = by_rail(shape, blocks);
  Cost cost{0, 0, members_beside(shape) * all};
  for (const Blocks& rail : rails) {
    const Cost far = cost_of_reduce_scatter_by_levels(NodePosition(shape, 0).on_rail(0), rail);
    cost.rounds = far.rounds + rails.size() - 1;
    cost.sent_most = std::max(cost.sent_most, far.sent_most + all - rail.total());
  }
  return cost;
}

// Collects all blocks of my node for my rail, and sorts them by the node that gets them. With two nodes of two, member
// 0 then holds for its own node and for the other: 0->0 1->0 | 0->2 1->2.
Schedule all_to_all_by_levels(const Shape& shape, const Slice& given, const Slice& taken, std::size_t free) {
  if (!has_equal_nodes(shape)) return to_each(shape, given, taken);
  const NodePosition me(shape, shape.index);
  const auto members = static_cast<std::size_t>(me.members());
  const auto nodes = static_cast<std::size_t>(me.all_nodes());
  const std::size_t each = shape.count;
  const std::size_t whole = static_cast<std::size_t>(shape.size) * each;
  const auto block = [&](const Slice& all, std::size_t number) {
    return Slice{all.space, all.offset + number * each, each};
  };
  const Slice leaving = scratch(free, whole);  // by rail and node
  const Slice coming = scratch(free + whole, whole);
  const Slice sorted = scratch(free + 2 * whole, whole);  // by node and giver
  const auto member = [&](std::size_t node, std::size_t local) {
    return static_cast<std::size_t>(me.nodes[node][local]);
  };
  ScheduleBuilder node_part;
  node_part.round();
  for (std::size_t local = 0; local < members; ++local) {
    for (std::size_t node = 0; node < nodes; ++node)
      node_part.copy(block(leaving, local * nodes + node), block(given, member(node, local)));
  }
  const auto for_rail = [&](const Slice& all, int local) {
    return Slice{all.space, all.offset + static_cast<std::size_t>(local) * nodes * each, nodes * each};
  };
  const Shape node = me.in_node(0);
  node_part.round();
  for (int step = 1; step < node.size; ++step)
    node_part.send(node.next(step), for_rail(leaving, node.next(step)))
        .receive(node.before(step), for_rail(coming, node.before(step)));
  for (std::size_t giver = 0; giver < members; ++giver) {
    const Slice& from = giver == static_cast<std::size_t>(me.local) ? leaving : coming;
    for (std::size_t to = 0; to < nodes; ++to)
      node_part.copy(block(sorted, to * members + giver), block(from, giver * nodes + to));
  }
  // A node's blocks are one block on the rail. The sorted blocks are the rail's input, and its output is where the
  // blocks of my node came in.
  const Shape rail = me.on_rail(members * each);
  Schedule far = all_to_all_by_levels(rail, sorted, coming, free + 3 * whole);
  ScheduleBuilder end;
  end.round();
  for (std::size_t from = 0; from < nodes; ++from) {
    for (std::size_t giver = 0; giver < members; ++giver)
      end.copy(block(taken, member(from, giver)), block(coming, from * members + giver));
  }
  return then(then(on(me.node_group(), node_part.done()), on(me.rail_group(), std::move(far))), end.done());
}

// A member sends all blocks for other rails within its node. On its rail it sends, of its node's blocks, all for other
// nodes.
Cost cost_of_all_to_all_by_levels(const Shape& shape) {
  if (!has_equal_nodes(shape)) {
    const std::size_t sent = members_beside(shape) * shape.count;
    return {1, sent, static_cast<std::size_t>(shape.size) * sent};
  }
  const NodePosition any(shape, 0);
  const auto members = static_cast<std::size_t>(any.members());
  const auto nodes = static_cast<std::size_t>(any.all_nodes());
  const Cost far = cost_of_all_to_all_by_levels(any.on_rail(members * shape.count));
  const std::size_t node_part = (members - 1) * nodes * shape.count;
  return {1 + far.rounds, node_part + far.sent_most,
          static_cast<std::size_t>(shape.size) * node_part + members * far.sent_total};
}

std::span<const Algorithm> hierarchical_block_algorithms() { return hierarchical_blocks_table; }

}  // namespace lockstep
