// SPDX-License-Identifier: Apache-2.0
// Lets one member of each node talk to other nodes; the members of a node meet in shared memory before and afterwards.
// With nodes 0 1 | 2 3, the leaders are 0 and 2.
//
//   `all-reduce`, `reduce`  The sums of the nodes go to 0 and 2, then among these, and then to all.
//   `broadcast`             Data go to 0, then to 2, and then in the nodes.
//   `node_chain`            A broadcast goes in pieces, from node to node. Sums of a scan go so too, but whole.
//   `all-gather`            My node's blocks go to 0 and 2, then between these, and then to all.
//   `reduce-scatter`        The sums of the nodes go to 0 and 2, then a part to each node, and then to its members.
//   `gather`, `scatter`     A node's blocks are one message, from or to its leader.
//   `all-to-all`            The blocks from one node to another are one message.
//   `scan`, `exscan`        The nodes scan. The sum of all nodes before mine comes to its leader, and all combine it.
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

int count_of_nodes(const Nodes& nodes) { return static_cast<int>(nodes.size()); }

Schedule intra_node_leaders_all_reduce(const Shape& shape) {
  const Leaders leaders(shape, shape.levels->nodes.front().front());
  const Slice mine = output(0, leaders.all.contains_me() ? shape.count : 0);
  Schedule all = only(in_node(leaders.me, Collective::reduce, input(0, shape.count), mine));
  if (leaders.all.contains_me())
    all = then(std::move(all), on(leaders.all, of_result(recursive_doubling_all_reduce(leaders.among(shape.count)))));
  if (leaders.me.members() == 1) return all;
  return then(std::move(all), only(in_node(leaders.me, Collective::broadcast, mine, output(0, shape.count))));
}

template <Build far>
Schedule leaders_broadcast(const Shape& shape) {
  const Leaders leaders(shape, shape.root);
  Shape among = leaders.among(shape.count);
  among.segment = shape.segment;
  Schedule all;
  if (leaders.all.contains_me()) all = on(leaders.all, far(among));
  if (leaders.me.members() == 1) return all;
  return then(std::move(all),
              only(in_node(leaders.me, Collective::broadcast, output(0, leaders.all.contains_me() ? shape.count : 0),
                           output(0, shape.count), leaders.local_leader(leaders.me.node))));
}

// Only the root has an output; the others' sums lie at the beginning of scratch.
Schedule intra_node_leaders_reduce(const Shape& shape) {
  const Leaders leaders(shape, shape.root);
  const bool is_root = shape.index == shape.root;
  const Slice sum{is_root ? Space::output : Space::scratch, 0, leaders.all.contains_me() ? shape.count : 0};
  Schedule all =
      only(in_node(leaders.me, Collective::reduce, input(0, shape.count), sum, leaders.local_leader(leaders.me.node)));
  if (!leaders.all.contains_me()) return all;
  const Slice incoming = scratch(is_root ? 0 : shape.count, shape.count);
  Schedule across = reduce_by_levels(sum, incoming, leaders.among(shape.count));
  return then(std::move(all), on(leaders.all, moved(std::move(across), Space::input, sum.space, 0)));
}

Cost cost_of_leaders_broadcast(const Shape& shape) {
  const NodePosition top(shape, shape.root);
  Shape among = top.on_rail(shape.count);
  among.root = top.node;
  return cost_of_broadcast_by_levels(among);
}

Cost cost_of_leaders_chain(const Shape& shape) {
  const NodePosition top(shape, shape.root);
  Shape among = top.on_rail(shape.count);
  among.segment = shape.segment;
  return cost_of_chain(among);
}

Cost intra_node_leaders_cost_of_reduce(const Shape& shape) {
  const NodePosition top(shape, shape.root);
  const auto others = static_cast<std::size_t>(top.all_nodes() - 1);
  return {rounds_by_levels(top.on_rail(0)), shape.count, others * shape.count};
}

Cost intra_node_leaders_cost_of_all_reduce(const Shape& shape) {
  const NodePosition any(shape, 0);
  return cost_of_recursive_doubling(any.on_rail(shape.count));
}

// The members of a node meet, the leaders hear of each other, and the members meet again.
Schedule intra_node_leaders_barrier(const Shape& shape) {
  const Leaders leaders(shape, shape.levels->nodes.front().front());
  ScheduleBuilder across;
  const Shape among = leaders.among(0);
  std::size_t heard = 0;
  for (int reach = 1; leaders.all.contains_me() && reach < among.size; reach *= 2)
    across.round().send(among.next(reach), input(0, 1)).receive(among.before(reach), scratch(heard++, 1));
  const Schedule meet = only(in_node(leaders.me, Collective::barrier, input(0, 0), output(0, 0)));
  Schedule all = meet;
  if (leaders.all.contains_me()) all = then(std::move(all), on(leaders.all, across.done()));
  return then(std::move(all), meet);
}

Cost intra_node_leaders_cost_of_barrier(const Shape& shape) {
  const auto rounds = static_cast<std::size_t>(doublings(static_cast<int>(shape.levels->nodes.size())));
  return {rounds, rounds, rounds * shape.levels->nodes.size()};
}

// Returns the blocks of each node side by side; the members of each node must follow each other.
Blocks blocks_of_nodes(const Nodes& nodes, const Blocks& blocks) {
  std::vector<std::size_t> counts;
  counts.reserve(nodes.size());
  for (const auto& members : nodes) counts.push_back(blocks_of(blocks, members).total());
  return Blocks::packed(counts);
}

// Gathers a node's blocks on its members, then the leaders gather those of all nodes, and then each broadcasts them.
Schedule leaders_all_gather(const Shape& shape) {
  const Leaders leaders(shape, 0);
  const NodePosition& me = leaders.me;
  const Blocks blocks = packed(shape.output_blocks);
  const Slice all_blocks = output(0, blocks.total());
  IntraNodeStep own = in_node(me, Collective::all_gather_v, input(0, blocks.count(shape.index)), all_blocks);
  own.blocks = blocks_of(blocks, me.node_members());
  ScheduleBuilder gathered;
  if (me.members() > 1)
    gathered.round().node_step(std::move(own));
  else
    gathered.round().copy(blocks.slice(Space::output, shape.index), own.from);
  Schedule all = gathered.done();
  const bool leads = leaders.all.contains_me();
  if (leads)
    all = then(std::move(all), on(leaders.all, doubling_gather(leaders.among(0), blocks_of_nodes(me.nodes, blocks))));
  if (me.members() > 1)
    all = then(std::move(all), only(in_node(me, Collective::broadcast, leads ? all_blocks : output(0, 0), all_blocks)));
  return with_packed_output(std::move(all), shape.output_blocks);
}

Cost cost_of_leaders_all_gather(const Shape& shape) {
  const Nodes& nodes = shape.levels->nodes;
  return cost_of_doubling_gather(count_of_nodes(nodes), blocks_of_nodes(nodes, packed(shape.output_blocks)));
}

// Is the range of a node's blocks, if all blocks are equal and the node's members follow each other.
struct NodeSlots {
  NodeSlots(const Nodes& nodes, int node, std::size_t each)
      : first(nodes[static_cast<std::size_t>(node)].front()),
        members(nodes[static_cast<std::size_t>(node)].size()),
        offset(static_cast<std::size_t>(first) * each),
        count(members * each) {}
  int first;
  std::size_t members;
  std::size_t offset;
  std::size_t count;
};

// Returns an IntraNodeStep in which the leader takes, or gives, all blocks of its node.
Schedule by_blocks(const NodePosition& me, Collective collective, const Slice& from, const Slice& to, int leader,
                   Blocks blocks) {
  IntraNodeStep node_step = in_node(me, collective, from, to, leader);
  node_step.blocks = std::move(blocks);
  return only(std::move(node_step));
}

// A node's blocks are one message, from its leader to the root, or back.
template <bool gathers>
Schedule leaders_blocks(const Shape& shape) {
  const Leaders leaders(shape, shape.root);
  const NodePosition& me = leaders.me;
  const bool leads = leaders.all.contains_me();
  const bool is_root = shape.index == shape.root;
  const auto at_root = [&](int node) {
    const NodeSlots run(me.nodes, node, shape.count);
    return Slice{gathers ? Space::output : Space::input, run.offset, run.count};
  };
  const Slice all_blocks = is_root ? at_root(me.node) : scratch(0, leads ? at_root(me.node).count : 0);
  ScheduleBuilder across;
  across.round();
  const auto pass = [&](int peer, const Slice& blocks, bool sends) {
    sends ? across.send(peer, blocks) : across.receive(peer, blocks);
  };
  if (leads && !is_root) pass(shape.root, all_blocks, gathers);
  for (int node = 0; is_root && node < me.all_nodes(); ++node) {
    if (node != me.node) pass(leaders.leader_of(node), at_root(node), !gathers);
  }
  const Collective collective = gathers ? Collective::gather_v : Collective::scatter_v;
  const Slice from = gathers ? input(0, shape.count) : all_blocks;
  const Slice to = gathers ? all_blocks : output(0, shape.count);
  Schedule node =
      by_blocks(me, collective, from, to, leaders.local_leader(me.node), Blocks::even(shape.count, me.members()));
  return gathers ? then(std::move(node), across.done()) : then(across.done(), std::move(node));
}

// The root sends or receives one message for each other node.
template <bool gathers>
Cost cost_of_leaders_blocks(const Shape& shape) {
  const NodePosition top(shape, shape.root);
  Cost cost{1, 0, 0};
  for (int node = 0; node < top.all_nodes(); ++node) {
    const std::size_t count = node == top.node ? 0 : NodeSlots(top.nodes, node, shape.count).count;
    cost.sent_total += count;
    cost.sent_most = std::max(cost.sent_most, count);
  }
  if (!gathers) cost.sent_most = cost.sent_total;
  return cost;
}

// Divides the leader's scratch: its node's inputs by member; data for other nodes, and data from them, by node; its
// node's outputs by member.
struct LeadersScratch {
  LeadersScratch(const Shape& shape, const Nodes& nodes, int node)
      : each(shape.count),
        whole(static_cast<std::size_t>(shape.size) * each),
        members(nodes[static_cast<std::size_t>(node)].size()),
        leaving(members * whole),
        coming(2 * leaving),
        taken(3 * leaving) {}
  std::size_t each;
  std::size_t whole;
  std::size_t members;
  std::size_t leaving;
  std::size_t coming;
  std::size_t taken;
  Slice given_by(std::size_t mate, std::size_t offset, std::size_t count) const {
    return scratch(mate * whole + offset, count);
  }
  Slice taken_by(std::size_t mate, std::size_t from) const { return scratch(taken + mate * whole + from * each, each); }
};

Schedule exchange_of_leaders(const Leaders& leaders, const LeadersScratch& at) {
  const NodePosition& me = leaders.me;
  const NodeSlots mine(me.nodes, me.node, at.each);
  ScheduleBuilder across;
  across.round();
  for (int node = 0; node < me.all_nodes(); ++node) {
    const NodeSlots other(me.nodes, node, at.each);
    for (std::size_t mate = 0; mate < at.members; ++mate) {
      if (node != me.node) {
        across.copy(scratch(at.leaving + at.members * other.offset + mate * other.count, other.count),
                    at.given_by(mate, other.offset, other.count));
        continue;
      }
      for (std::size_t giver = 0; giver < at.members; ++giver)
        across.copy(at.taken_by(mate, static_cast<std::size_t>(mine.first) + giver),
                    at.given_by(giver, mine.offset + mate * at.each, at.each));
    }
  }
  across.round();
  for (int node = 0; node < me.all_nodes(); ++node) {
    if (node == me.node) continue;
    const NodeSlots other(me.nodes, node, at.each);
    const std::size_t begin = at.members * other.offset;
    const std::size_t count = at.members * other.count;
    across.send(leaders.leader_of(node), scratch(at.leaving + begin, count))
        .receive(leaders.leader_of(node), scratch(at.coming + begin, count));
    for (std::size_t giver = 0; giver < other.members; ++giver) {
      for (std::size_t mate = 0; mate < at.members; ++mate)
        across.copy(at.taken_by(mate, static_cast<std::size_t>(other.first) + giver),
                    scratch(at.coming + begin + (giver * at.members + mate) * at.each, at.each));
    }
  }
  return across.done();
}

Schedule leaders_all_to_all(const Shape& shape) {
  const Leaders leaders(shape, 0);
  const NodePosition& me = leaders.me;
  const bool leads = leaders.all.contains_me();
  const LeadersScratch at(shape, me.nodes, me.node);
  const std::size_t all_blocks = leads ? at.members * at.whole : 0;
  const Blocks blocks = Blocks::even(at.whole, me.members());
  Schedule all = by_blocks(me, Collective::gather_v, input(0, at.whole), scratch(0, all_blocks), 0, blocks);
  if (leads) all = then(std::move(all), exchange_of_leaders(leaders, at));
  return then(std::move(all),
              by_blocks(me, Collective::scatter_v, scratch(at.taken, all_blocks), output(0, at.whole), 0, blocks));
}

Cost cost_of_leaders_all_to_all(const Shape& shape) {
  Cost cost{1, 0, 0};
  for (const auto& members : shape.levels->nodes) {
    const std::size_t sent = members.size() * (static_cast<std::size_t>(shape.size) - members.size()) * shape.count;
    cost.sent_total += sent;
    cost.sent_most = std::max(cost.sent_most, sent);
  }
  return cost;
}

// Scratch holds my node's sums, and then the sums of all nodes for mine.
Schedule leaders_reduce_scatter(const Shape& shape) {
  const Leaders leaders(shape, 0);
  const NodePosition& me = leaders.me;
  const bool leads = leaders.all.contains_me();
  const Blocks blocks = packed(shape.input_blocks);
  const std::size_t total = blocks.total();
  const Blocks nodes = blocks_of_nodes(me.nodes, blocks);
  const std::size_t mine = nodes.count(me.node);
  Schedule all = only(in_node(me, Collective::reduce, input(0, total), scratch(0, leads ? total : 0)));
  if (leads) {
    Schedule across = ring_reduce_scatter_to(output(0, mine), leaders.among(0), nodes);
    across = moved(std::move(across), Space::scratch, Space::scratch, total + mine);
    across = moved(std::move(across), Space::input, Space::scratch, 0);
    across = moved(std::move(across), Space::output, Space::scratch, total);
    all = then(std::move(all), on(leaders.all, std::move(across)));
  }
  all = then(std::move(all),
             by_blocks(me, Collective::scatter_v, scratch(total, leads ? mine : 0),
                       output(0, blocks.count(shape.index)), 0, packed(blocks_of(blocks, me.node_members()))));
  return with_packed_input(std::move(all), shape.input_blocks);
}

Cost cost_of_leaders_reduce_scatter(const Shape& shape) {
  const Blocks nodes = blocks_of_nodes(shape.levels->nodes, packed(shape.input_blocks));
  const auto rounds = static_cast<std::size_t>(nodes.parts() - 1);
  return {rounds, nodes.total() - nodes.smallest(), rounds * nodes.total()};
}

// A leader's scratch holds its node's sum, and on all members the sum of the nodes before mine.
// `far` computes the latter.
template <Collective collective, Build far>
Schedule leaders_scan(const Shape& shape) {
  const Leaders leaders(shape, 0);
  const NodePosition& me = leaders.me;
  const bool leads = leaders.all.contains_me();
  const Slice given = input(0, shape.count);
  const Slice result = output(0, shape.count);
  const Slice sum = scratch(0, leads ? shape.count : 0);
  const Slice before = scratch(shape.count, shape.count);
  ScheduleBuilder node;
  node.round();
  if (me.members() > 1) {
    node.node_step(in_node(me, Collective::reduce, given, sum)).node_step(in_node(me, collective, given, result));
  } else {
    node.copy(sum, given);
    if (collective == Collective::scan) node.copy(result, given);
  }
  Schedule all = node.done();
  if (leads) {
    Schedule across = far(leaders.among(shape.count));
    across = moved(std::move(across), Space::scratch, Space::scratch, 2 * shape.count);
    across = moved(std::move(across), Space::input, Space::scratch, 0);
    across = moved(std::move(across), Space::output, Space::scratch, shape.count);
    all = then(std::move(all), on(leaders.all, std::move(across)));
  }
  if (me.node == 0) return all;
  if (me.members() > 1)
    all = then(std::move(all), only(in_node(me, Collective::broadcast, leads ? before : scratch(0, 0), before)));
  ScheduleBuilder end;
  end.round();
  if (collective == Collective::exscan && me.local == 0)
    end.copy(result, before);
  else
    end.reduce(result, before, result);
  return then(std::move(all), end.done());
}

template <Cost (*cost)(const Shape&)>
Cost cost_of_leaders_scan(const Shape& shape) {
  return cost(NodePosition(shape, 0).on_rail(shape.count));
}

// True if members are few enough; with many the leader's schedule is too long. The limit is a guess.
bool has_few_in_runs(const Shape& shape) {
  constexpr int few = 256;
  return shape.size <= few && has_runs(shape);
}

constexpr AlgorithmProperties intra_node_leaders_plain{.node = true};
constexpr AlgorithmProperties intra_node_leaders_order{.order = true, .node = true};
constexpr AlgorithmProperties node_chain_order{.order = true, .node = true, .relays = true};

constexpr std::array<Algorithm, 16> intra_node_leaders_table = {{
    {Collective::all_reduce, "node_leaders", intra_node_leaders_all_reduce, intra_node_leaders_cost_of_all_reduce,
     intra_node_leaders_plain, has_neighbours},
    {Collective::broadcast, "node_leaders", leaders_broadcast<broadcast_by_levels>, cost_of_leaders_broadcast,
     intra_node_leaders_plain, has_neighbours},
    {Collective::broadcast, "node_chain", leaders_broadcast<chain_broadcast>, cost_of_leaders_chain,
     intra_node_leaders_plain, has_neighbours, true},
    {Collective::reduce, "node_leaders", intra_node_leaders_reduce, intra_node_leaders_cost_of_reduce,
     intra_node_leaders_plain, has_neighbours},
    {Collective::barrier, "node_leaders", intra_node_leaders_barrier, intra_node_leaders_cost_of_barrier,
     intra_node_leaders_plain, has_neighbours},
    {Collective::all_gather, "node_leaders", leaders_all_gather, cost_of_leaders_all_gather, intra_node_leaders_plain,
     has_runs},
    {Collective::all_gather_v, "node_leaders", leaders_all_gather, cost_of_leaders_all_gather, intra_node_leaders_plain,
     has_runs},
    {Collective::gather, "node_leaders", leaders_blocks<true>, cost_of_leaders_blocks<true>, intra_node_leaders_plain,
     has_runs},
    {Collective::scatter, "node_leaders", leaders_blocks<false>, cost_of_leaders_blocks<false>,
     intra_node_leaders_plain, has_runs},
    {Collective::all_to_all, "node_leaders", leaders_all_to_all, cost_of_leaders_all_to_all, intra_node_leaders_plain,
     has_few_in_runs},
    {Collective::reduce_scatter, "node_leaders", leaders_reduce_scatter, cost_of_leaders_reduce_scatter,
     intra_node_leaders_plain, has_runs},
    {Collective::reduce_scatter_v, "node_leaders", leaders_reduce_scatter, cost_of_leaders_reduce_scatter,
     intra_node_leaders_plain, has_runs},
    {Collective::scan, "node_leaders", leaders_scan<Collective::scan, doubling_exscan>,
     cost_of_leaders_scan<cost_of_doubling_exscan>, intra_node_leaders_order, has_runs},
    {Collective::scan, "node_chain", leaders_scan<Collective::scan, linear_exscan>,
     cost_of_leaders_scan<cost_of_linear>, node_chain_order, has_runs},
    {Collective::exscan, "node_leaders", leaders_scan<Collective::exscan, doubling_exscan>,
     cost_of_leaders_scan<cost_of_doubling_exscan>, intra_node_leaders_order, has_runs},
    {Collective::exscan, "node_chain", leaders_scan<Collective::exscan, linear_exscan>,
     cost_of_leaders_scan<cost_of_linear>, node_chain_order, has_runs},
}};

}  // namespace

std::span<const Algorithm> intra_node_leader_algorithms() { return intra_node_leaders_table; }

}  // namespace lockstep
