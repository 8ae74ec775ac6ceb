// SPDX-License-Identifier: Apache-2.0
// Members of a node meet in the memory that they share, and only what must goes by messages: rail l is the l-th members
// of all nodes. With 2 nodes of 2, members 0 1 | 2 3 and rails 0 2, 1 3:
//
//   node_*, all-reduce   in the nodes, halves a b of their sums:   a to 0, b to 1 | a to 2, b to 3
//                        on the rails, halves of the whole sum:    a of 0 and 2, b of 1 and 3
//                        in the nodes, both halves:                a b of 0 and 1 | a b of 2 and 3
//   node_leaders         the sums of the nodes to 0 and 2, among these, and from them to all
//   node_chain           a broadcast to 0, from there to 2 in pieces, and so on; then in the nodes
//   all-gather           on the rails: 0 2 | 1 3 | 0 2 | 1 3      in the nodes, the rails of the others
//                node_leaders   the blocks of my node to 0 and 2, between these, and from them to all
//   reduce-scatter       as on the rails, from its end
//   all-to-all           in the nodes, all that is given, to all; on the rails, what is for the other end of it
//
// Nodes may have unequal numbers of members: there are as many rails as the smallest node has members, and who is on
// none gives and takes in its node only.
#include <array>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/halving.hpp"
#include "collectives/algorithms/parts.hpp"
#include "collectives/algorithms/shared.hpp"
#include "collectives/algorithms/standing.hpp"

namespace lockstep {
namespace {

using Build = Schedule (*)(const Shape&);
using Price = Cost (*)(const Shape&);

int rails_of(const Nodes& nodes) {
  int least = count_of(nodes.front());
  for (const auto& members : nodes) least = std::min(least, count_of(members));
  return least;
}

int count_of_nodes(const Nodes& nodes) { return static_cast<int>(nodes.size()); }

// Where nobody has a neighbour there is nothing that memory could do.
bool has_neighbours(const Shape& shape) {
  return has_nodes(shape) &&
         std::ranges::any_of(shape.levels->nodes, [](const auto& members) { return members.size() > 1; });
}

// The members of a node follow each other, and the nodes, too.
bool has_runs(const Shape& shape) {
  int next = 0;
  return has_neighbours(shape) && std::ranges::all_of(shape.levels->nodes, [&](const auto& members) {
           return std::ranges::all_of(members, [&](int member) { return member == next++; });
         });
}

// What rail l carries is for the l-th member, and nothing is for those on no rail.
Blocks for_rails(std::size_t count, int rails, int members) {
  Blocks split = Blocks::split(count, rails);
  if (rails == members) return split;
  std::vector<std::size_t> counts(static_cast<std::size_t>(members), 0);
  for (int rail = 0; rail < rails; ++rail) counts[static_cast<std::size_t>(rail)] = split.count(rail);
  return Blocks::packed(counts);
}

Near in_node(const Standing& me, Collective collective, const Slice& from, const Slice& to, int root = 0) {
  return {.collective = collective, .members = me.near(), .root = root, .from = from, .to = to};
}

Schedule only(Near near) {
  ScheduleBuilder node;
  if (near.members.size() > 1) {
    node.round().near(std::move(near));
  } else if (near.collective != Collective::barrier) {
    node.round().copy(near.to, near.from);
  }
  return node.done();
}

// The sums of my node: of all rails to those who are on them.
Schedule sums_of_node(const Standing& me, const Slice& all, const Blocks& blocks, int rails) {
  const Slice mine = blocks.slice(Space::output, me.local);
  if (rails == 1) return only(in_node(me, Collective::reduce, all, mine));
  Near near = in_node(me, Collective::reduce_scatter_v, all, mine);
  near.blocks = blocks;
  return only(std::move(near));
}

// What the rails have brought, to all.
Schedule to_all_of_node(const Standing& me, std::size_t count, const Blocks& blocks, int rails) {
  const Slice mine = blocks.slice(Space::output, me.local);
  if (me.members() == 1) return {};
  if (rails == 1) return only(in_node(me, Collective::broadcast, mine, output(0, count)));
  Near near = in_node(me, Collective::all_gather_v, mine, output(0, count));
  near.blocks = blocks;
  return only(std::move(near));
}

template <Build rail>
Schedule node_all_reduce(const Shape& shape) {
  const Standing me(shape, shape.index);
  const int rails = rails_of(me.nodes);
  const Blocks blocks = for_rails(shape.count, rails, me.members());
  const Slice mine = blocks.slice(Space::output, me.local);
  Schedule all = sums_of_node(me, input(0, shape.count), blocks, rails);
  if (me.local < rails)
    all = then(std::move(all), on(me.rail_group(), within(mine, of_result(rail(me.on_rail(mine.count))))));
  return then(std::move(all), to_all_of_node(me, shape.count, blocks, rails));
}

// What members do in their nodes is no message.
template <Price rail>
Cost cost_of_rails(const Shape& shape) {
  const Standing any(shape, 0);
  const Blocks split = Blocks::split(shape.count, rails_of(any.nodes));
  Cost cost = rail(any.on_rail(split.largest()));
  cost.sent_total = rail(any.on_rail(shape.count)).sent_total;
  return cost;
}

Schedule leaders_all_reduce(const Shape& shape) {
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
Schedule leaders_reduce(const Shape& shape) {
  const Leaders leaders(shape, shape.root);
  const bool is_root = shape.index == shape.root;
  const Slice sum{is_root ? Space::output : Space::scratch, 0, leaders.all.contains_me() ? shape.count : 0};
  Schedule all =
      only(in_node(leaders.me, Collective::reduce, input(0, shape.count), sum, leaders.local_leader(leaders.me.node)));
  if (!leaders.all.contains_me()) return all;
  const Slice incoming = scratch(is_root ? 0 : shape.count, shape.count);
  Schedule across = binomial_reduce_to(sum, incoming, leaders.among(shape.count));
  return then(std::move(all), on(leaders.all, moved(std::move(across), Space::input, sum.space, 0)));
}

Cost cost_of_leaders_broadcast(const Shape& shape) {
  const Standing top(shape, shape.root);
  const auto rounds = static_cast<std::size_t>(doublings(top.all_nodes()));
  const auto others = static_cast<std::size_t>(top.all_nodes() - 1);
  return {rounds, static_cast<std::size_t>(binomial_children(0, top.all_nodes())) * shape.count, others * shape.count};
}

Cost cost_of_leaders_chain(const Shape& shape) {
  const Standing top(shape, shape.root);
  Shape among = top.on_rail(shape.count);
  among.segment = shape.segment;
  return cost_of_chain(among);
}

Cost cost_of_leaders_reduce(const Shape& shape) {
  const Standing top(shape, shape.root);
  const auto rounds = static_cast<std::size_t>(doublings(top.all_nodes()));
  return {rounds, shape.count, static_cast<std::size_t>(top.all_nodes() - 1) * shape.count};
}

Cost cost_of_leaders_all_reduce(const Shape& shape) {
  const Standing any(shape, 0);
  return cost_of_recursive_doubling(any.on_rail(shape.count));
}

// All of a node meet, the leaders hear of each other, and all of a node meet again.
Schedule leaders_barrier(const Shape& shape) {
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

Cost cost_of_leaders_barrier(const Shape& shape) {
  const auto rounds = static_cast<std::size_t>(doublings(static_cast<int>(shape.levels->nodes.size())));
  return {rounds, rounds, rounds * shape.levels->nodes.size()};
}

// Of each node its block of my rail comes around; then of each node all rails, in the memory of mine.
Schedule rails_all_gather(const Shape& shape) {
  const Standing me(shape, shape.index);
  const Group rail = me.rail_group();
  ScheduleBuilder own;
  own.round().copy(shape.takes.slice(Space::output, shape.index), input(0, shape.takes.count(shape.index)));
  Schedule all = then(own.done(), on(rail, ring_gather(me.on_rail(0), blocks_of(shape.takes, rail.ranks()))));
  ScheduleBuilder node;
  node.round();
  for (const auto& members : me.nodes) {
    const Slice mine = shape.takes.slice(Space::output, members[static_cast<std::size_t>(me.local)]);
    Near near = in_node(me, Collective::all_gather_v, mine, output(0, shape.takes.extent()));
    near.blocks = blocks_of(shape.takes, members);
    node.near(std::move(near));
  }
  return then(std::move(all), node.done());
}

// The blocks of each node side by side, for those whose nodes are runs of members.
Blocks blocks_of_nodes(const Nodes& nodes, const Blocks& blocks) {
  std::vector<std::size_t> counts;
  counts.reserve(nodes.size());
  for (const auto& members : nodes) counts.push_back(blocks_of(blocks, members).total());
  return Blocks::packed(counts);
}

// All of a node to its leader, and beside it to all there; the leaders among themselves; and from them to all.
Schedule leaders_all_gather(const Shape& shape) {
  const Leaders leaders(shape, 0);
  const Standing& me = leaders.me;
  const Blocks blocks = packed(shape.takes);
  const Slice all_blocks = output(0, blocks.total());
  Near own = in_node(me, Collective::all_gather_v, input(0, blocks.count(shape.index)), all_blocks);
  own.blocks = blocks_of(blocks, me.near());
  ScheduleBuilder gathered;
  if (me.members() > 1)
    gathered.round().near(std::move(own));
  else
    gathered.round().copy(blocks.slice(Space::output, shape.index), own.from);
  Schedule all = gathered.done();
  const bool leads = leaders.all.contains_me();
  if (leads)
    all = then(std::move(all), on(leaders.all, doubling_gather(leaders.among(0), blocks_of_nodes(me.nodes, blocks))));
  if (me.members() > 1)
    all = then(std::move(all), only(in_node(me, Collective::broadcast, leads ? all_blocks : output(0, 0), all_blocks)));
  return with_packed_output(std::move(all), shape.takes);
}

Cost cost_of_leaders_all_gather(const Shape& shape) {
  const Nodes& nodes = shape.levels->nodes;
  return cost_of_doubling_gather(count_of_nodes(nodes), blocks_of_nodes(nodes, packed(shape.takes)));
}

Cost cost_of_rails_all_gather(const Shape& shape) {
  const Nodes& nodes = shape.levels->nodes;
  Cost cost{nodes.size() - 1, 0, (nodes.size() - 1) * shape.takes.total()};
  for (std::size_t local = 0; local < nodes.front().size(); ++local) {
    std::size_t rail = 0;
    for (const auto& members : nodes) rail += shape.takes.count(members[local]);
    for (const auto& members : nodes)
      cost.sent_most = std::max(cost.sent_most, rail - shape.takes.count(members[local]));
  }
  return cost;
}

// Of each node the sums of my node for it, each of its blocks to who is on that rail here, one after the other in
// scratch; then each rail adds up what its nodes have.
Schedule rails_reduce_scatter(const Shape& shape) {
  const Standing me(shape, shape.index);
  const Group rail = me.rail_group();
  const Blocks theirs = blocks_of(shape.gives, rail.ranks());
  std::vector<std::size_t> counts;
  counts.reserve(me.nodes.size());
  for (int node = 0; node < me.all_nodes(); ++node) counts.push_back(theirs.count(node));
  const Blocks sums = Blocks::packed(counts);
  ScheduleBuilder node;
  node.round();
  for (int other = 0; other < me.all_nodes(); ++other) {
    Near near =
        in_node(me, Collective::reduce_scatter_v, input(0, shape.gives.extent()), sums.slice(Space::scratch, other));
    near.blocks = blocks_of(shape.gives, me.nodes[static_cast<std::size_t>(other)]);
    node.near(std::move(near));
  }
  Schedule across = ring_reduce_scatter_to(output(0, sums.count(me.node)), me.on_rail(0), sums);
  const std::size_t at = sums.total();
  across = moved(std::move(across), Space::scratch, Space::scratch, at);
  across = moved(std::move(across), Space::input, Space::scratch, 0);
  return then(node.done(), on(rail, std::move(across)));
}

Cost cost_of_rails_reduce_scatter(const Shape& shape) {
  const Nodes& nodes = shape.levels->nodes;
  Cost cost{nodes.size() - 1, 0, (nodes.size() - 1) * shape.gives.total()};
  for (std::size_t local = 0; local < nodes.front().size(); ++local) {
    std::size_t rail = 0;
    for (const auto& members : nodes) rail += shape.gives.count(members[local]);
    for (const auto& members : nodes)
      cost.sent_most = std::max(cost.sent_most, rail - shape.gives.count(members[local]));
  }
  return cost;
}

// All of a node see what any of them gives; rail l carries what is for the l-th members of other nodes, from all of
// mine. With 2 nodes of 2, member 0 sends to 2:   0->2 1->2
Schedule rails_all_to_all(const Shape& shape) {
  const Standing me(shape, shape.index);
  const std::size_t each = shape.count;
  const std::size_t whole = static_cast<std::size_t>(shape.size) * each;
  const auto members = static_cast<std::size_t>(me.members());
  const std::size_t packed = members * whole;
  const std::size_t come = packed + whole;
  const auto given = [&](std::size_t mate, int to) {
    return scratch(mate * whole + static_cast<std::size_t>(to) * each, each);
  };
  Near near = in_node(me, Collective::all_gather_v, input(0, whole), scratch(0, members * whole));
  near.blocks = Blocks::even(whole, me.members());
  ScheduleBuilder rails;
  rails.round().near(std::move(near)).round();
  for (const auto& node : me.nodes) {
    const auto number = static_cast<std::size_t>(&node - me.nodes.data());
    const int peer = node[static_cast<std::size_t>(me.local)];
    for (std::size_t mate = 0; mate < members; ++mate) {
      if (peer == shape.index)
        rails.copy(shape.takes.slice(Space::output, node[mate]), given(mate, peer));
      else
        rails.copy(scratch(packed + (number * members + mate) * each, each), given(mate, peer));
    }
  }
  rails.round();
  for (const auto& node : me.nodes) {
    const int peer = node[static_cast<std::size_t>(me.local)];
    if (peer == shape.index) continue;
    const std::size_t at = static_cast<std::size_t>(&node - me.nodes.data()) * members * each;
    rails.send(peer, scratch(packed + at, members * each)).receive(peer, scratch(come + at, members * each));
    for (std::size_t mate = 0; mate < members; ++mate)
      rails.copy(shape.takes.slice(Space::output, node[mate]), scratch(come + at + mate * each, each));
  }
  return rails.done();
}

Cost cost_of_rails_all_to_all(const Shape& shape) {
  const Nodes& nodes = shape.levels->nodes;
  const std::size_t far = (nodes.size() - 1) * nodes.front().size() * shape.count;
  return {1, far, static_cast<std::size_t>(shape.size) * far};
}

constexpr Algorithm::Keeps plain{.node = true};
constexpr Algorithm::Keeps apart{.node = true, .apart = true};
constexpr Algorithm::Keeps once{.once = true, .node = true};
constexpr Algorithm::Keeps balanced{.order = true, .balanced = true, .node = true};
constexpr Algorithm::Keeps balanced_once{.order = true, .balanced = true, .once = true, .node = true};

constexpr std::array<Algorithm, 17> table = {{
    {Collective::all_reduce, "node_ring", node_all_reduce<ring_all_reduce>, cost_of_rails<cost_of_ring_all_reduce>,
     once, has_neighbours},
    {Collective::all_reduce, "node_doubling", node_all_reduce<recursive_doubling_all_reduce>,
     cost_of_rails<cost_of_recursive_doubling>, plain, has_neighbours},
    {Collective::all_reduce, "node_halving", node_all_reduce<balanced_halving_all_reduce>,
     cost_of_rails<cost_of_balanced_halving>, once, has_neighbours},
    {Collective::all_reduce, "node_balanced", node_all_reduce<balanced_halving_all_reduce>,
     cost_of_rails<cost_of_balanced_halving>, balanced_once, has_aligned_nodes},
    {Collective::all_reduce, "node_balanced_doubling", node_all_reduce<balanced_doubling_all_reduce>,
     cost_of_rails<cost_of_balanced_doubling>, balanced, has_aligned_nodes},
    {Collective::all_reduce, "node_leaders", leaders_all_reduce, cost_of_leaders_all_reduce, plain, has_neighbours},
    {Collective::broadcast, "node_leaders", leaders_broadcast<binomial_broadcast>, cost_of_leaders_broadcast, plain,
     has_neighbours},
    {Collective::broadcast, "node_chain", leaders_broadcast<chain_broadcast>, cost_of_leaders_chain, plain,
     has_neighbours, true},
    {Collective::reduce, "node_leaders", leaders_reduce, cost_of_leaders_reduce, plain, has_neighbours},
    {Collective::barrier, "node_leaders", leaders_barrier, cost_of_leaders_barrier, plain, has_neighbours},
    {Collective::all_gather, "node_rails", rails_all_gather, cost_of_rails_all_gather, apart, has_equal_nodes},
    {Collective::all_gather_v, "node_rails", rails_all_gather, cost_of_rails_all_gather, plain, has_equal_nodes},
    {Collective::all_gather, "node_leaders", leaders_all_gather, cost_of_leaders_all_gather, plain, has_runs},
    {Collective::all_gather_v, "node_leaders", leaders_all_gather, cost_of_leaders_all_gather, plain, has_runs},
    {Collective::all_to_all, "node_rails", rails_all_to_all, cost_of_rails_all_to_all, plain, has_equal_nodes},
    {Collective::reduce_scatter, "node_rails", rails_reduce_scatter, cost_of_rails_reduce_scatter, apart,
     has_equal_nodes},
    {Collective::reduce_scatter_v, "node_rails", rails_reduce_scatter, cost_of_rails_reduce_scatter, plain,
     has_equal_nodes},
}};

}  // namespace

std::span<const Algorithm> near_algorithms() { return table; }

}  // namespace lockstep
