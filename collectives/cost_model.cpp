// SPDX-License-Identifier: Apache-2.0
// A member's time is the sum over its rounds: latency, then the larger of what it sends and receives, then what it
// combines; where the chain of messages is longer than its own rounds, it waits as long as its mean round takes.
// The network interface is shared by all members of a node, and a core by all members that are bound to it.
// A sample of members and of the laps of a round is looked at, so that large groups cost hardly more than small ones.
#include "collectives/cost_model.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <set>

namespace lockstep {
namespace {

constexpr std::string_view guess = "a starting guess, measured nowhere; `lockstep tune` will replace it";

constexpr std::array<LinkCost, 7> table = {{
    {Link::self, 0.1, 10000, guess},
    {Link::same_core, 1.0, 6000, guess},
    {Link::shared_cache, 0.6, 8000, guess},
    {Link::same_numa, 0.8, 6000, guess},
    {Link::same_package, 1.0, 5000, guess},
    {Link::same_node, 1.5, 4000, guess},
    {Link::network, 15.0, 1250, guess},  // 10 Gbit/s, where no interface says what it can do
}};
constexpr double combined_bytes_per_us = 8000;  // starting guess: copies and reductions of one core
constexpr double narrow_share = 0.5;            // of the bytes of 32-bit floats, where messages carry 16 bits
// Starting guesses: of a core that members share, for a message within a node, at both ends together; for a meeting.
constexpr double near_work_us = 3;
constexpr double turn_us = 3;
constexpr double meeting_us = 2;          // starting guess: of members of a node in memory, from message to message
constexpr double further_message = 0.25;  // starting guess: of a latency, for each message beside the first
// Starting guess: of a core, for a message between nodes by TCP, at both ends together.
constexpr double far_work_us = 8;
// How often as long as the work itself a member waits for its turn of a core that others share, in each round. On
// virtual nodes (4 x 2 and 2 x 4 members on two cores, 2026-11-25) a further round took 80 to 110 us.
constexpr double turns_waited = 2;
// Starting guess: messages within a node that go through sockets move their bytes so often.
constexpr double by_kernel = 4;
// Starting guess: of what is done within nodes while messages are on their way, where members share cores: those do
// one thing or the other, for the kernel as well.
constexpr double not_hidden = 0.5;
// The same of messages of pieces that flow from member to member, which the kernel takes and brings while others are on
// their way: on virtual nodes (4 x 2 at 1 Gbit/s, 2026-11-25) a chain of all members took hardly more than the network.
constexpr double not_hidden_of_pieces = 0.1;
// Of a core that members share, for each further segment in which one holds up the wire until all of its node have met:
// on virtual nodes (4 x 2 at 1 Gbit/s, 2026-11-25) 120 to 350 us with four members for each core.
constexpr double held_us = 30;
// Two who exchange messages wait for each other in every round, where in a ring one is waited for: on virtual nodes
// (4 x 2 at 1 Gbit/s, 2026-11-25) halving took 3 to 10 % longer than a ring of as many bytes.
constexpr double exchanged = 1.05;
// Messages of several members that come to one at once are in each other's way: there all-to-all in one round took 10
// to 25 % longer than with each other member in its turn.
constexpr double at_once = 1.15;
constexpr int lanes_of_a_call = 3;

const LinkCost& cost_of(Link link) { return table.at(static_cast<std::size_t>(link)); }

// Bytes per microsecond of the fastest interfaces of a node; 0: it does not say.
double network_rate(const MachineShape& machine) {
  std::int64_t fastest = 0;
  for (const Nic& nic : machine.nics) fastest = std::max(fastest, nic.mbit_per_s);
  const auto count = std::ranges::count(machine.nics, fastest, &Nic::mbit_per_s);
  return static_cast<double>(fastest) * static_cast<double>(count) / 8;
}

// Of all nodes of the group, where equal nodes are looked at once.
double most_members_per_core(const Topology& topology, const std::set<int>& nodes) {
  std::map<std::vector<int>, double> known;
  double most = 1;
  for (const int node : nodes) {
    std::vector<int> places{topology.node(node).machine};
    for (const int rank : topology.ranks_of_node(node)) places.push_back(topology.member(rank).place);
    const auto [entry, is_new] = known.try_emplace(std::move(places), 0);
    if (is_new) entry->second = topology.members_per_core(node);
    most = std::max(most, entry->second);
  }
  return most;
}

void add_network(GroupFacts& facts, const Topology& topology, const std::set<int>& nodes) {
  double slowest = 0;
  facts.network_known = true;
  for (const int node : nodes) {
    const double rate = network_rate(topology.machine_of_node(node));
    facts.network_known = facts.network_known && rate > 0;
    slowest = slowest == 0 ? rate : std::min(slowest, rate);
  }
  facts.network_bytes_per_us = facts.network_known ? slowest : cost_of(Link::network).bytes_per_us;
  facts.short_bytes_per_us = facts.network_bytes_per_us;
  facts.network_latency_us = cost_of(Link::network).latency_us;
  facts.near_latency_us = cost_of(facts.near).latency_us;
  facts.far_work_us = far_work_us;
  facts.near_work_us = near_work_us;
  const Topology::Network& measured = topology.network();
  if (measured.bytes_per_us > 0) {
    facts.network_known = facts.is_measured = true;
    facts.network_bytes_per_us = measured.bytes_per_us;
    facts.flow_bytes_per_us = measured.flow_bytes_per_us;
    facts.short_bytes_per_us = std::max(measured.bytes_per_us, measured.short_bytes_per_us);
    facts.network_latency_us = measured.latency_us;
    if (measured.near_us > 0) facts.near_latency_us = measured.near_us;
    // A core's work for a message is a part of the time that this takes.
    facts.far_work_us = std::min(far_work_us, facts.network_latency_us);
    facts.near_work_us = std::min(near_work_us, facts.near_latency_us);
    facts.members_per_core = std::max(facts.members_per_core, measured.crowd);
  }
}

// Messages of one lap in one direction.
struct Traffic {
  int messages = 0;
  int far_messages = 0;
  double near_bytes = 0;
  double far_bytes = 0;
  double rack_bytes = 0;
  double flow_bytes = 0;
};

Traffic traffic_of(const std::vector<Message>& messages, int lap, int node, const GroupFacts& facts) {
  Traffic all;
  for (const Message& message : messages) {
    const auto bytes = static_cast<double>(message.walk.at(lap).count);
    if (bytes == 0) continue;
    const int other = facts.node_of.at(static_cast<std::size_t>(message.peer_at(lap)));
    const bool far = other != node;
    if (!facts.rack_of.empty() &&
        facts.rack_of[static_cast<std::size_t>(other)] != facts.rack_of[static_cast<std::size_t>(node)])
      all.rack_bytes += bytes;
    (far ? all.far_bytes : all.near_bytes) += bytes;
    if (far) all.flow_bytes = std::max(all.flow_bytes, bytes);
    all.far_messages += far ? 1 : 0;
    ++all.messages;
  }
  return all;
}

bool exchanges(const Round& round, int lap) {
  return std::ranges::any_of(round.sends, [&](const Message& sent) {
    return std::ranges::any_of(round.receives,
                               [&](const Message& received) { return received.peer_at(lap) == sent.peer_at(lap); });
  });
}

void add_lap(Load& load, const Round& round, int lap, double weight, int node, const GroupFacts& facts, bool narrow) {
  const Traffic sent = traffic_of(round.sends, lap, node, facts);
  const Traffic received = traffic_of(round.receives, lap, node, facts);
  const int messages = std::max(sent.messages, received.messages);
  const double far = std::max(sent.far_bytes, received.far_bytes);
  for (const Local& local : round.locals)
    load.combined_bytes += weight * static_cast<double>(local.target.at(lap).count);
  if (messages == 0) return;
  const double latency = far > 0 ? facts.network_latency_us : facts.near_latency_us;
  load.laps += weight;
  load.work_us += weight * (far > 0 ? facts.far_work_us : facts.near_work_us) * messages;
  load.latency_us += weight * latency * (1 + further_message * (messages - 1));
  load.near_bytes += weight * std::max(sent.near_bytes, received.near_bytes) * (facts.is_measured ? by_kernel : 1);
  const double held = sent.far_messages > 1 && received.far_messages > 1 ? at_once : 1;
  load.far_bytes += weight * far * held * (narrow ? narrow_share : 1) * (exchanges(round, lap) ? exchanged : 1);
  load.rack_bytes += weight * std::max(sent.rack_bytes, received.rack_bytes) * (narrow ? narrow_share : 1);
  load.flow_bytes += weight * std::max(sent.flow_bytes, received.flow_bytes) * (narrow ? narrow_share : 1);
  // To pack or unpack an element moves six bytes, to combine two moves twelve.
  if (narrow) load.combined_bytes += weight * (sent.far_bytes + received.far_bytes) / 2;
}

// What is given is read once more by those who take it; what is combined is read from all.
void add_near(Load& load, const Near& near) {
  ++load.meetings;
  load.latency_us += meeting_us;
  // Of a buffer that blocks cut, only these.
  const auto part = [&](bool is_cut, const Slice& whole) {
    return static_cast<double>(is_cut ? std::min(near.blocks.total(), whole.count) : whole.count);
  };
  (is_rooted(near.collective) ? load.held_bytes : load.room_bytes) +=
      part(cuts_input(near.collective), near.from) + part(cuts_output(near.collective), near.to);
  if (reduces(near.collective))
    load.combined_bytes += static_cast<double>(near.to.count) * static_cast<double>(near.members.size());
}

Load load_of(const Schedule& schedule, int index, const GroupFacts& facts, bool narrow) {
  constexpr int most_laps = 64;  // of a round that are looked at
  const int node = facts.node_of.at(static_cast<std::size_t>(index));
  Load load;
  for (const Round& round : schedule.rounds) {
    for (const Near& near : round.near) add_near(load, near);
    const int looked_at = std::min(round.times, most_laps);
    const double weight = static_cast<double>(round.times) / looked_at;
    for (int i = 0; i < looked_at; ++i) {
      const auto lap = static_cast<int>(static_cast<long long>(i) * round.times / looked_at);
      add_lap(load, round, lap, weight, node, facts, narrow);
    }
  }
  return load;
}

bool sends_input_only(const Round& round) {
  return std::ranges::all_of(round.sends, [](const Message& message) { return message.walk.space() == Space::input; });
}

// Members of the first node, evenly spread where there are many.
std::vector<int> sampled(const std::vector<int>& members) {
  constexpr std::size_t most = 16;
  const std::size_t count = std::min(members.size(), most);
  std::vector<int> some(count);
  for (std::size_t i = 0; i < count; ++i) some[i] = members[i * members.size() / count];
  return some;
}

Load mean(const std::vector<Load>& loads, std::size_t count) {
  Load all;
  const auto n = static_cast<double>(count);
  for (std::size_t i = 0; i < count; ++i) {
    all.laps += loads[i].laps / n;
    all.work_us += loads[i].work_us / n;
    all.meetings += loads[i].meetings / n;
    all.near_bytes += loads[i].near_bytes / n;
    all.room_bytes += loads[i].room_bytes / n;
    all.held_bytes += loads[i].held_bytes / n;
    all.far_bytes += loads[i].far_bytes / n;
    all.rack_bytes += loads[i].rack_bytes / n;
    all.combined_bytes += loads[i].combined_bytes / n;
  }
  return all;
}

// "row1/rack3" is in "row1", and that in nothing that has a name.
std::string outer(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string::npos ? std::string() : name.substr(0, slash);
}

// By the names of what they are in. A level at which all are alone, or together, is none.
std::shared_ptr<const Levels> levels_of(std::vector<std::string> names) {
  while (!std::ranges::all_of(names, &std::string::empty)) {
    std::map<std::string, std::size_t> number;
    Levels level;
    std::vector<std::string> outside;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const auto [entry, is_new] = number.try_emplace(names[i], level.nodes.size());
      if (is_new) {
        level.nodes.emplace_back();
        outside.push_back(outer(names[i]));
      }
      level.nodes[entry->second].push_back(static_cast<int>(i));
    }
    if (level.nodes.size() > 1 && level.nodes.size() < names.size()) {
      level.above = levels_of(std::move(outside));
      return std::make_shared<const Levels>(std::move(level));
    }
    std::ranges::transform(names, names.begin(), outer);
  }
  return nullptr;
}

// What the first rack sends to others, and receives: by some of its members, or all of them where they are few.
double rack_bytes_of(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts) {
  if (facts.rack_bytes_per_us <= 0 || facts.rack_of.empty()) return 0;
  std::vector<int> members;
  for (std::size_t node = 0; node < facts.rack_of.size(); ++node) {
    if (facts.rack_of[node] != facts.rack_of.front()) continue;
    members.insert(members.end(), facts.levels.nodes[node].begin(), facts.levels.nodes[node].end());
  }
  constexpr std::size_t few = 64;
  constexpr std::size_t odd = 7919;  // so that the same place in every node is not all that is seen
  const std::size_t looked_at = std::min(few, members.size());
  double bytes = 0;
  for (std::size_t i = 0; i < looked_at; ++i) {
    const int index = members[looked_at < members.size() ? i * odd % members.size() : i];
    Shape shape = problem;
    shape.index = index;
    bytes += load_of(algorithm.build(shape), index, facts, problem.rounds_off).rack_bytes;
  }
  return bytes * static_cast<double>(members.size()) / static_cast<double>(looked_at);
}

void add_racks(GroupFacts& facts, const Topology& topology, const Group& group) {
  if (!topology.has_racks()) return;
  std::vector<std::string> names;
  for (const auto& members : facts.levels.nodes)
    names.push_back(topology.node(topology.member(group.rank(members.front())).node).rack);
  facts.levels.above = levels_of(std::move(names));
  if (facts.levels.above == nullptr) return;
  facts.rack_of.resize(facts.levels.nodes.size());
  const Levels& racks = *facts.levels.above;
  for (std::size_t rack = 0; rack < racks.nodes.size(); ++rack) {
    for (const int node : racks.nodes[rack]) facts.rack_of[static_cast<std::size_t>(node)] = static_cast<int>(rack);
  }
  facts.rack_bytes_per_us = static_cast<double>(topology.rack_mbit_per_s()) / 8;
}

}  // namespace

std::span<const LinkCost> link_costs() { return table; }

GroupFacts facts_of(const Topology& topology, const Group& group) {
  GroupFacts facts{.size = group.size()};
  std::map<int, int> number;  // by node of the topology
  std::set<int> nodes;
  for (int index = 0; index < group.size(); ++index) {
    const int rank = group.rank(index);
    const int node = topology.member(rank).node;
    const auto [entry, is_new] = number.try_emplace(node, static_cast<int>(facts.levels.nodes.size()));
    if (is_new) facts.levels.nodes.emplace_back();
    nodes.insert(node);
    auto& members = facts.levels.nodes.at(static_cast<std::size_t>(entry->second));
    members.push_back(index);
    facts.node_of.push_back(entry->second);
    facts.most_on_a_node = std::max(facts.most_on_a_node, static_cast<int>(members.size()));
    facts.near = std::max(facts.near, topology.link(group.rank(members.front()), rank));
  }
  add_racks(facts, topology, group);
  facts.members_per_core = most_members_per_core(topology, nodes);
  add_network(facts, topology, nodes);
  return facts;
}

Workload workload_of(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts) {
  std::vector<int> members = sampled(facts.levels.nodes.front());
  Workload work{.near_ones = members.size(),
                .rounds = static_cast<double>(algorithm.cost(problem).rounds),
                .rack_bytes = rack_bytes_of(algorithm, problem, facts),
                .pieces = algorithm.pieces ? Blocks::pieces(problem.count, problem.segment).parts() : 1};
  for (const int other : {facts.size / 2, facts.size - 1}) members.push_back(other);
  for (const int index : members) {
    Shape shape = problem;
    shape.index = index;
    const Schedule schedule = algorithm.build(shape);
    work.passes_nothing_on = work.passes_nothing_on && std::ranges::all_of(schedule.rounds, sends_input_only);
    work.loads.push_back(load_of(schedule, index, facts, problem.rounds_off));
  }
  return work;
}

double price_us(const Workload& work, double scale, const GroupFacts& facts, int segments) {
  const Load average = mean(work.loads, work.near_ones);
  const double crowd = facts.members_per_core;
  const auto on_first_node = static_cast<double>(facts.levels.nodes.front().size());
  const double rack_us = facts.rack_bytes_per_us > 0 ? work.rack_bytes * scale / facts.rack_bytes_per_us : 0;
  // What leaves the rack does so while its other members' does, and not while that which stays is on its way.
  const auto by_network = [&](double all, double to_others, double rate) {
    return (all - to_others) * scale / rate + (to_others > 0 ? std::max(to_others * scale / rate, rack_us) : 0);
  };
  // On cores that members share it is their work that counts, and not how long each message is on its way.
  const double busy = crowd > 1 ? average.work_us * crowd : 0;
  const double meetings = crowd > 1 ? average.meetings * turn_us * crowd : 0;
  double most = 0;
  for (const Load& load : work.loads) {
    const double waits = load.laps > 0 ? std::max(1.0, work.rounds / load.laps) : 1;
    const double near_rate = cost_of(facts.near).bytes_per_us;
    const double messages = std::max(load.near_bytes * waits, average.near_bytes * crowd) * scale / near_rate;
    const double room = std::max(load.room_bytes * waits, average.room_bytes * crowd) * scale / near_rate;
    const double held = std::max(load.held_bytes * waits, average.held_bytes * crowd) * scale / near_rate;
    const double combined =
        std::max(load.combined_bytes * waits, average.combined_bytes * crowd) * scale / combined_bytes_per_us;
    // One message after the other, and what an interface has to carry when such a call follows the other.
    constexpr double short_ones = 2 * Topology::short_message_bytes;
    const bool is_short = load.far_bytes * scale <= short_ones * std::max(1.0, load.laps);
    const double rate = is_short ? facts.short_bytes_per_us : facts.network_bytes_per_us;
    // Segments that are under way at a time have connections of their own.
    const double flows = std::min(segments, lanes_of_a_call);
    const double flow = facts.flow_bytes_per_us > 0 && !is_short
                            ? load.flow_bytes * waits * scale / (facts.flow_bytes_per_us * flows)
                            : 0;
    const double far = std::max({flow, by_network(load.far_bytes * waits, load.rack_bytes * waits, rate),
                                 by_network(average.far_bytes * on_first_node, average.rack_bytes * on_first_node,
                                            facts.network_bytes_per_us)});
    const double turns = crowd > 1 ? turns_waited * load.work_us * waits * crowd : 0;
    // Cores that members share are busy with the next messages while those before are on the wire, if these are not
    // passed on.
    const double hidden = work.passes_nothing_on && crowd > 1 ? (1 - not_hidden) * std::min(busy + turns, far) : 0;
    const double begins = std::max(load.latency_us * waits, busy + turns) + meetings - hidden;
    const double more = (segments - 1) * (busy + meetings);  // for the cores
    const double holds = crowd > 1 && load.held_bytes > 0 ? (segments - 1) * held_us * crowd : 0;
    const auto beside = [&](double near, double extra, int parts, double least) {
      return std::max(far, near + extra) + std::min(far, near) * std::max(1.0 / parts, crowd > 1 ? least : 0);
    };
    if (segments > 1)
      most = std::max(most, begins + beside(messages + room + combined, more, segments, not_hidden) + held + holds);
    else
      most = std::max(most, begins + beside(messages, 0, work.pieces, not_hidden_of_pieces) + room + held + combined);
  }
  return most;
}

double price_us(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts, int segments) {
  return price_us(workload_of(algorithm, problem, facts), 1, facts, segments);
}

std::size_t segment_that_suits(const GroupFacts& facts) {
  constexpr double latencies = 8;
  constexpr std::size_t least = 64U << 10U;
  constexpr std::size_t most = 16U << 20U;
  if (!facts.is_measured) return 0;
  const double round = std::max(facts.network_latency_us, facts.far_work_us * facts.members_per_core);
  const double wanted = latencies * round * facts.network_bytes_per_us * facts.nodes();
  std::size_t segment = least;
  while (segment < most && static_cast<double>(segment) < wanted) segment *= 2;
  return segment;
}

}  // namespace lockstep
