// SPDX-License-Identifier: Apache-2.0
// Computes prices. A member's time is the sum over its rounds: latency, then the larger of its sent and received bytes,
// then its combining. If the chain of messages is longer than its own rounds, it waits as long as its mean round takes.
// The members of a node share its network interface, and the members that are bound to a core share that. Only a sample
// of members and of a round's laps is examined, so that large groups cost hardly more than small ones.
#include "collectives/cost_model.hpp"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr double combined_bytes_per_us = 8000;  // starting guess: copies and reductions of one core
constexpr double narrow_share = 0.5;            // of the bytes of 32-bit floats, if messages carry 16 bits
// Starting guess: the time of a shared core for a step in memory.
constexpr double turn_us = 3;
// Starting guess: the time of a step of a node's members in memory.
constexpr double meeting_us = 2;
// Starting guess: the part of a latency that each further message of a round adds.
constexpr double further_message = 0.25;
// A member on a shared core waits this many times as long as the work itself for its turn, in each round. On virtual
// nodes (4 x 2 and 2 x 4 members on two cores, 2026-11-25) a further round took 80 to 110 us.
constexpr double turns_waited = 2;
// Starting guess: messages within a node that go through sockets move their bytes this many times.
constexpr double by_kernel = 4;
// Starting guess: the part of the work within nodes that messages do not hide if members share cores. Shared cores do
// one thing or the other, and so does the kernel.
constexpr double not_hidden = 0.5;
// The same part for pieces that flow from member to member; the kernel moves some while others are on their way. On
// virtual nodes (4 x 2 at 1 Gbit/s, 2026-11-25) a chain of all members took hardly more than the network.
constexpr double not_hidden_of_pieces = 0.1;
// The time of a shared core for each further segment in which one member holds up the wire until its whole node has
// met. On virtual nodes (4 x 2 at 1 Gbit/s, 2026-11-25) that took 120 to 350 us with four members for each core.
constexpr double held_us = 30;
// Two members that exchange messages wait for each other in every round; in a ring a member waits for one. On virtual
// nodes (4 x 2 at 1 Gbit/s, 2026-11-25) halving took 3 to 10 % longer than a ring of as many bytes.
constexpr double exchanged = 1.05;
// Messages of several members that arrive at one at the same time delay each other. There all-to-all in one round took
// 10 to 25 % longer than with one other member after another.
constexpr double at_once = 1.15;
constexpr int lanes_of_a_call = 3;

// Sums the messages of one lap in one direction.
struct Traffic {
  int messages = 0;
  int far_messages = 0;
  double near_bytes = 0;
  double far_bytes = 0;
  double rack_bytes = 0;
  double flow_bytes = 0;
  bool is_close = true;  // all within a package
};

Traffic traffic_of(const std::vector<Message>& messages, int lap, int index, const GroupFacts& facts) {
  const int node = facts.node_of[static_cast<std::size_t>(index)];
  Traffic all;
  for (const Message& message : messages) {
    const auto bytes = static_cast<double>(message.slice.at(lap).count);
    if (bytes == 0) continue;
    const auto peer = static_cast<std::size_t>(message.peer_at(lap));
    const int other = facts.node_of.at(peer);
    const bool far = other != node;
    const bool close =
        !facts.package_of.empty() && facts.package_of[peer] == facts.package_of[static_cast<std::size_t>(index)];
    if (!facts.rack_of.empty() &&
        facts.rack_of[static_cast<std::size_t>(other)] != facts.rack_of[static_cast<std::size_t>(node)])
      all.rack_bytes += bytes;
    (far ? all.far_bytes : all.near_bytes) += bytes * (close ? facts.package_share : 1);
    if (!close) all.is_close = false;
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

void add_lap(Load& load, const Round& round, int lap, double weight, int index, const GroupFacts& facts, bool narrow) {
  const Traffic sent = traffic_of(round.sends, lap, index, facts);
  const Traffic received = traffic_of(round.receives, lap, index, facts);
  const int messages = std::max(sent.messages, received.messages);
  const double far = std::max(sent.far_bytes, received.far_bytes);
  for (const LocalStep& local : round.locals)
    load.combined_bytes += weight * static_cast<double>(local.target.at(lap).count);
  if (messages == 0) return;
  const bool is_close = sent.is_close && received.is_close && !facts.package_of.empty();
  const double near_latency_us = is_close ? facts.package_latency_us : facts.near_latency_us;
  const double latency = far > 0 ? facts.network_latency_us : near_latency_us;
  load.laps += weight;
  load.work_us += weight * (far > 0 ? facts.far_work_us : facts.near_work_us) * messages;
  load.latency_us += weight * latency * (1 + further_message * (messages - 1));
  load.near_bytes += weight * std::max(sent.near_bytes, received.near_bytes) * (facts.is_measured ? by_kernel : 1);
  const double held = sent.far_messages > 1 && received.far_messages > 1 ? at_once : 1;
  load.far_bytes += weight * far * held * (narrow ? narrow_share : 1) * (exchanges(round, lap) ? exchanged : 1);
  load.rack_bytes += weight * std::max(sent.rack_bytes, received.rack_bytes) * (narrow ? narrow_share : 1);
  load.flow_bytes += weight * std::max(sent.flow_bytes, received.flow_bytes) * (narrow ? narrow_share : 1);
  // Packing or unpacking an element moves six bytes, and combining two moves twelve.
  if (narrow) load.combined_bytes += weight * (sent.far_bytes + received.far_bytes) / 2;
}

// Adds a step in the node's memory. Given data are read once more by the members that take them; combined data are read
// from all.
void add_near(Load& load, const IntraNodeStep& near) {
  ++load.meetings;
  load.latency_us += meeting_us;
  // Counts only the blocks of a buffer that blocks cut.
  const auto part = [&](bool is_cut, const Slice& whole) {
    return static_cast<double>(is_cut ? std::min(near.blocks.total(), whole.count) : whole.count);
  };
  (is_rooted(near.collective) ? load.held_bytes : load.room_bytes) +=
      part(cuts_input(near.collective), near.from) + part(cuts_output(near.collective), near.to);
  if (reduces(near.collective))
    load.combined_bytes += static_cast<double>(near.to.count) * static_cast<double>(near.members.size());
}

Load load_of(const Schedule& schedule, int index, const GroupFacts& facts, bool narrow) {
  constexpr int most_laps = 64;  // laps of a round that are examined
  Load load;
  for (const Round& round : schedule.rounds) {
    for (const IntraNodeStep& near : round.near) add_near(load, near);
    const int looked_at = std::min(round.times, most_laps);
    const double weight = static_cast<double>(round.times) / looked_at;
    for (int i = 0; i < looked_at; ++i) {
      const auto lap = static_cast<int>(static_cast<long long>(i) * round.times / looked_at);
      add_lap(load, round, lap, weight, index, facts, narrow);
    }
  }
  return load;
}

bool sends_input_only(const Round& round) {
  return std::ranges::all_of(round.sends, [](const Message& message) { return message.slice.space() == Space::input; });
}

// Returns members of the first node, evenly spread if there are many.
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

// Returns the bytes that the first rack sends to others, or receives. It examines some members, or all if they are few.
double rack_bytes_of(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts) {
  if (facts.rack_bytes_per_us <= 0 || facts.rack_of.empty()) return 0;
  std::vector<int> members;
  for (std::size_t node = 0; node < facts.rack_of.size(); ++node) {
    if (facts.rack_of[node] != facts.rack_of.front()) continue;
    members.insert(members.end(), facts.levels.nodes[node].begin(), facts.levels.nodes[node].end());
  }
  constexpr std::size_t few = 64;
  constexpr std::size_t odd = 7919;  // a step that visits different places of the nodes
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

const LinkCost& cost_of(Link link) { return link_costs()[static_cast<std::size_t>(link)]; }

}  // namespace

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
  // Bytes that leave the rack travel at the same time as those of its other members. They do not overlap with bytes
  // that stay in it.
  const auto by_network = [&](double all, double to_others, double rate) {
    return (all - to_others) * scale / rate + (to_others > 0 ? std::max(to_others * scale / rate, rack_us) : 0);
  };
  // On shared cores the members' work counts, and not the time that each message is on its way.
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
    // The first bound is one message after another; the second is the load of an interface if such calls follow each
    // other.
    constexpr double short_ones = 2 * Topology::short_message_bytes;
    const bool is_short = load.far_bytes * scale <= short_ones * std::max(1.0, load.laps);
    const double rate = is_short ? facts.short_bytes_per_us : facts.network_bytes_per_us;
    // Segments that are under way at the same time have connections of their own.
    const double flows = std::min(segments, lanes_of_a_call);
    const double flow = facts.flow_bytes_per_us > 0 && !is_short
                            ? load.flow_bytes * waits * scale / (facts.flow_bytes_per_us * flows)
                            : 0;
    const double far = std::max({flow, by_network(load.far_bytes * waits, load.rack_bytes * waits, rate),
                                 by_network(average.far_bytes * on_first_node, average.rack_bytes * on_first_node,
                                            facts.network_bytes_per_us)});
    const double turns = crowd > 1 ? turns_waited * load.work_us * waits * crowd : 0;
    // Shared cores work on the next messages while earlier ones are on the wire, unless those are passed on. With
    // pieces, that holds for all but the first ones.
    double beside_wire = work.passes_nothing_on ? 1 - not_hidden : 0;
    if (work.pieces > 1) beside_wire = (1 - not_hidden_of_pieces) * (1 - 1.0 / work.pieces);
    const double hidden = crowd > 1 ? std::min(busy + turns, far) * beside_wire : 0;
    const double begins = std::max(load.latency_us * waits, busy + turns) + meetings - hidden;
    const double more = (segments - 1) * (busy + meetings);  // work of the cores for further segments
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

// Takes the bytes that the busiest member reads of others' memory, at the rate of messages. `bytes` are those of
// Spec::count.
double price_of_meeting_us(Collective collective, std::uint64_t bytes, const GroupFacts& facts) {
  if (has_own_counts(collective)) return 0;
  const auto each = static_cast<double>(bytes);
  const double others = facts.size - 1;
  Load load;
  ++load.meetings;
  load.latency_us = meeting_us;
  if (collective == Collective::all_reduce || collective == Collective::reduce) {  // shared out, then collected
    load.combined_bytes = each * others / facts.size;
    load.room_bytes = 2 * load.combined_bytes;
  } else if (collective == Collective::broadcast || collective == Collective::scatter) {
    load.room_bytes = each;
  } else if (collective != Collective::barrier) {
    load.room_bytes = each * others;
    if (reduces(collective)) load.combined_bytes = load.room_bytes;
  }
  return price_us(Workload{.loads = {load}, .near_ones = 1}, 1, facts);
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
