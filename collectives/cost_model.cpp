// SPDX-License-Identifier: Apache-2.0
// Sums the work of members from their schedules, and computes the terms of predicted times. Only a sample of members
// and of a round's repetitions is examined, so that large groups cost hardly more than small ones.
#include "collectives/cost_model.hpp"

#include <algorithm>
#include <array>
#include <cmath>

namespace lockstep {
namespace {

using namespace cost;

// Sums the messages of one repetition of a round in one direction.
struct Traffic {
  int messages = 0;
  int far_messages = 0;
  double node_bytes = 0;
  double network_bytes = 0;
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
    (far ? all.network_bytes : all.node_bytes) += bytes * (close ? facts.package_share : 1);
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

void add_lap(MemberLoad& load, const Round& round, int lap, double weight, int index, const GroupFacts& facts,
             bool narrow) {
  const Traffic sent = traffic_of(round.sends, lap, index, facts);
  const Traffic received = traffic_of(round.receives, lap, index, facts);
  const int messages = std::max(sent.messages, received.messages);
  const double far = std::max(sent.network_bytes, received.network_bytes);
  for (const LocalStep& local : round.locals)
    load.combined_bytes += weight * static_cast<double>(local.target.at(lap).count);
  if (messages == 0) return;
  const bool is_close = sent.is_close && received.is_close && !facts.package_of.empty();
  const double node_latency_us = is_close ? facts.package_latency_us : facts.node_latency_us;
  const double latency = far > 0 ? facts.network_latency_us : node_latency_us;
  load.rounds += weight;
  load.messages += weight * messages;
  load.work_us += weight * (far > 0 ? facts.network_work_us : facts.node_work_us) * messages;
  load.latency_us += weight * latency * (1 + further_message_share * (messages - 1));
  load.node_bytes += weight * std::max(sent.node_bytes, received.node_bytes);
  const double crossed = sent.far_messages > 1 && received.far_messages > 1 ? many_peers_factor : 1.0;
  load.network_bytes +=
      weight * far * crossed * (narrow ? narrow_share : 1.0) * (exchanges(round, lap) ? exchange_factor : 1.0);
  load.sent_bytes += weight * sent.network_bytes;
  load.received_bytes += weight * received.network_bytes;
  load.rack_bytes += weight * std::max(sent.rack_bytes, received.rack_bytes) * (narrow ? narrow_share : 1.0);
  load.flow_bytes += weight * std::max(sent.flow_bytes, received.flow_bytes) * (narrow ? narrow_share : 1.0);
  // Packing or unpacking an element moves six bytes, and combining two moves twelve.
  if (narrow) load.combined_bytes += weight * (sent.network_bytes + received.network_bytes) / 2;
}

// Adds a step in the node's memory. Given data are read once more by the members that take them; combined data are read
// from all.
void add_node_step(MemberLoad& load, const IntraNodeStep& node_step) {
  ++load.memory_steps;
  // Counts only the blocks of a buffer that blocks cut.
  const auto part = [&](bool is_cut, const Slice& whole) {
    return static_cast<double>(is_cut ? std::min(node_step.blocks.total(), whole.count) : whole.count);
  };
  (is_rooted(node_step.collective) ? load.leader_bytes : load.memory_bytes) +=
      part(cuts_input(node_step.collective), node_step.from) + part(cuts_output(node_step.collective), node_step.to);
  if (reduces(node_step.collective))
    load.combined_bytes += static_cast<double>(node_step.to.count) * static_cast<double>(node_step.members.size());
}

MemberLoad load_of(const Schedule& schedule, int index, const GroupFacts& facts, bool narrow) {
  constexpr int most_laps = 64;  // laps of a round that are examined
  MemberLoad load;
  for (const Round& round : schedule.rounds) {
    for (const IntraNodeStep& node_step : round.node_steps) add_node_step(load, node_step);
    const int examined = std::min(round.times, most_laps);
    const double weight = static_cast<double>(round.times) / examined;
    for (int i = 0; i < examined; ++i) {
      const auto lap = static_cast<int>(static_cast<long long>(i) * round.times / examined);
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

MemberLoad mean(const std::vector<MemberLoad>& loads, std::size_t count) {
  MemberLoad all;
  const auto n = static_cast<double>(count);
  for (std::size_t i = 0; i < count; ++i) {
    all.rounds += loads[i].rounds / n;
    all.messages += loads[i].messages / n;
    all.work_us += loads[i].work_us / n;
    all.memory_steps += loads[i].memory_steps / n;
    all.node_bytes += loads[i].node_bytes / n;
    all.memory_bytes += loads[i].memory_bytes / n;
    all.leader_bytes += loads[i].leader_bytes / n;
    all.network_bytes += loads[i].network_bytes / n;
    all.sent_bytes += loads[i].sent_bytes / n;
    all.received_bytes += loads[i].received_bytes / n;
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
  constexpr std::size_t most_examined = 64;
  constexpr std::size_t stride = 7919;  // a prime, so that it visits different places of the nodes
  const std::size_t examined = std::min(most_examined, members.size());
  double bytes = 0;
  for (std::size_t i = 0; i < examined; ++i) {
    const int index = members[examined < members.size() ? i * stride % members.size() : i];
    Shape shape = problem;
    shape.index = index;
    bytes += load_of(algorithm.build(shape), index, facts, problem.rounds_off).rack_bytes;
  }
  return bytes * static_cast<double>(members.size()) / static_cast<double>(examined);
}

// Computes the terms of the formula for one member of a workload.
class MemberPrice {
 public:
  MemberPrice(const Workload& work, double scale, const GroupFacts& facts, int segments)
      : work_(work),
        scale_(scale),
        facts_(facts),
        segments_(segments),
        average_(mean(work.loads, work.first_node_loads)),
        average_work_us_(shares_cores() ? average_.work_us * crowd_ : 0),
        average_steps_us_(shares_cores() ? average_.memory_steps * shared_step_us * crowd_ : 0) {}

  PriceTerms of(const MemberLoad& load) const {
    const double waits = load.rounds > 0 ? std::max(1.0, work_.chain_rounds / load.rounds) : 1;
    // Only the first segment waits for others. Later ones follow it, unless members wait for cores as well.
    const bool all_wait = (shares_cores() && !work_.relays) || work_.pieces > 1;
    const double bytes_waits = all_wait ? waits : 1 + (waits - 1) / segments_;
    const double node_rate = link_cost_of(facts_.node_link).bytes_per_us;
    const double messages_us = busiest(load, &MemberLoad::node_bytes, bytes_waits) * node_message_factor() / node_rate;
    // The chain of messages does not lead through a node's memory several times, unless its members wait for cores.
    const double memory_waits = shares_cores() ? bytes_waits : 1;
    const double memory_us = busiest(load, &MemberLoad::memory_bytes, memory_waits) / node_rate;
    const double leader_us = busiest(load, &MemberLoad::leader_bytes, memory_waits) / node_rate;
    const double combine_us = busiest(load, &MemberLoad::combined_bytes, bytes_waits) / combine_rate;
    const double network_us = busiest_link_us(load, bytes_waits, interface_waits());
    const double turns_us = shares_cores() ? turns_us_of(load) * waits * crowd_ : 0;
    // On shared cores the members' work counts, and not the time that each message is on its way.
    const double core_us = average_work_us_ + turns_us;
    const double steps_us = load.memory_steps * (shares_cores() ? memory_step_us * waits : own_step_us());
    const double rounds_us = std::max(load.latency_us * waits + steps_us, core_us) + average_steps_us_;
    const double begin_us = rounds_us - (shares_cores() ? std::min(core_us, network_us) * hidden_share() : 0);
    const double segments_us = (segments_ - 1) * segment_us(load);
    const double leader_waits_us =
        shares_cores() && load.leader_bytes > 0 && !work_.relays ? (segments_ - 1) * leader_wait_us * crowd_ : 0;

    PriceTerms terms{.rounds_us = rounds_us + segments_us + leader_waits_us,
                     .network_us = network_us,
                     .node_us = messages_us + memory_us + leader_us,
                     .combine_us = combine_us};
    if (segments_ > 1) {
      // On its own core, a leader waits in the first segment only.
      const double stays_us = shares_cores() ? leader_us : 0;
      // The first segment's way through the chain of messages overlaps with nothing.
      const double chain_us = shares_cores() ? 0 : network_us - busiest_link_us(load, 1, 1);
      terms.total_us = begin_us + chain_us +
                       overlapped_us(network_us - chain_us, messages_us + memory_us + combine_us + leader_us - stays_us,
                                     segments_us, segments_, work_.relays ? exposed_share_of_pieces : exposed_share) +
                       stays_us + leader_waits_us;
    } else {
      const double between_us = works_at_once()
                                    ? std::max(network_us, messages_us)
                                    : overlapped_us(network_us, messages_us, 0, work_.pieces, exposed_share_of_pieces);
      terms.total_us = begin_us + between_us + memory_us + leader_us + combine_us;
    }
    const double sum_us = terms.rounds_us + terms.network_us + terms.node_us + terms.combine_us;
    terms.overlap_us = std::max(0.0, sum_us - terms.total_us);
    return terms;
  }

 private:
  bool shares_cores() const { return crowd_ > 1; }
  // True if cores copy within their nodes while links carry data: no message waits for another one.
  bool works_at_once() const { return work_.sends_input_only && !shares_cores(); }
  // Returns how much longer bytes take in messages within a node than in its memory.
  double node_message_factor() const { return facts_.is_measured && !works_at_once() ? message_factor : 1.0; }

  // Returns the time in which a member waits for its turn on a shared core. The messages of a round share their turn.
  // If members send their input only, messages mostly come before they are waited for, so all share one turn.
  double turns_us_of(const MemberLoad& load) const {
    if (load.messages == 0) return 0;
    const double turns = work_.sends_input_only ? std::min(1.0, load.rounds) : load.rounds;
    const double messages = turns + further_message_share * (load.messages - turns);
    return turn_waits * load.work_us / load.messages * messages + shared_step_us * (load.rounds - turns);
  }

  // Returns the time of a core for one more segment.
  double segment_us(const MemberLoad& load) const {
    if (shares_cores()) return average_work_us_ + average_steps_us_;
    return load.work_us + (work_.flows ? 0 : load.memory_steps * own_step_us());
  }
  // Returns the time of a step in the node's memory for members with cores of their own.
  double own_step_us() const { return std::min<double>(memory_step_us, facts_.node_latency_us); }

  // Returns the bytes of the member, or of all members of its core if those are more.
  double busiest(const MemberLoad& load, double MemberLoad::*bytes, double waits) const {
    return std::max(load.*bytes * waits, average_.*bytes * crowd_) * scale_;
  }

  // Returns the time of bytes on a link, of which a part leaves the rack. That part travels at the same time as the
  // bytes of the rack's other members. It does not overlap with bytes that stay in the rack.
  double link_us(double all, double leaving, double rate) const {
    leaving = std::min(leaving, all);  // of a chain, `all` counts one direction
    const double rack_us = facts_.rack_bytes_per_us > 0 ? work_.rack_bytes * scale_ / facts_.rack_bytes_per_us : 0;
    return (all - leaving) * scale_ / rate + (leaving > 0 ? std::max(leaving * scale_ / rate, rack_us) : 0);
  }

  // Returns the bytes that a member's link takes one after another. If segments follow each other from node to node,
  // one is received while another is sent.
  double network_bytes_of(const MemberLoad& load) const {
    return work_.relays && segments_ > 1 ? std::max(load.sent_bytes, load.received_bytes) : load.network_bytes;
  }

  // Returns how often the bytes pass over the interface of a node before all nodes have them. Only the first segment
  // counts so. It is an upper bound if the chain has messages within nodes too.
  double interface_waits() const {
    double rounds = 0;
    for (std::size_t i = 0; i < work_.first_node_loads; ++i) rounds = std::max(rounds, work_.loads[i].rounds);
    return shares_cores() || rounds == 0 ? 1 : 1 + std::max(0.0, work_.chain_rounds / rounds - 1) / segments_;
  }

  // Returns the time of the busiest link between nodes: the member's connection, its messages one after another, or the
  // interface of its node if such calls follow each other.
  double busiest_link_us(const MemberLoad& load, double waits, double interface_waits) const {
    constexpr double short_bytes = 2 * Topology::short_message_bytes;
    const double bytes = network_bytes_of(load);
    const bool is_short = load.network_bytes * scale_ <= short_bytes * std::max(1.0, load.rounds);
    const double rate = is_short ? facts_.short_bytes_per_us : facts_.network_bytes_per_us;
    const double connections = std::min<int>(segments_, most_segments_in_flight);
    const double connection_us = facts_.flow_bytes_per_us > 0 && !is_short
                                     ? load.flow_bytes * waits * scale_ / (facts_.flow_bytes_per_us * connections)
                                     : 0;
    const auto members = static_cast<double>(facts_.levels.nodes.front().size());
    const double of_node = members * interface_waits;
    return std::max(
        {connection_us, link_us(bytes * waits, load.rack_bytes * waits, rate),
         link_us(network_bytes_of(average_) * of_node, average_.rack_bytes * of_node, facts_.network_bytes_per_us)});
  }

  // Returns the share of the work for messages that is hidden on shared cores. They work on the next messages while
  // earlier ones are on the wire, unless those are passed on. With pieces, that holds for all but the first ones.
  double hidden_share() const {
    if (work_.pieces > 1) return (1 - exposed_share_of_pieces) * (1 - 1.0 / work_.pieces);
    return work_.sends_input_only ? 1 - exposed_share : 0;
  }

  // Returns the time of work between nodes beside work within them, in parts that follow each other. The first part
  // cannot overlap, and on shared cores at least a share of the work does not.
  double overlapped_us(double network, double node, double extra, int parts, double exposed) const {
    return std::max(network, node + extra) +
           std::min(network, node) * std::max(1.0 / parts, shares_cores() ? exposed : 0);
  }

  const Workload& work_;
  double scale_;
  const GroupFacts& facts_;
  int segments_;
  double crowd_ = facts_.members_per_core;
  MemberLoad average_;
  double average_work_us_;
  double average_steps_us_;
};

// Returns the bytes that a link between nodes carries in the time of a short message.
double bytes_of_round(const GroupFacts& facts) {
  return std::max(facts.network_latency_us, facts.network_work_us * facts.members_per_core) *
         facts.network_bytes_per_us;
}

}  // namespace

Workload workload_of(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts) {
  std::vector<int> members = sampled(facts.levels.nodes.front());
  Workload work{.first_node_loads = members.size(),
                .chain_rounds = static_cast<double>(algorithm.cost(problem).rounds),
                .rack_bytes = rack_bytes_of(algorithm, problem, facts),
                .pieces = algorithm.pieces ? Blocks::pieces(problem.count, problem.segment).parts() : 1,
                .relays = algorithm.keeps.relays,
                .flows = algorithm.keeps.flows};
  for (const int other : {facts.size / 2, facts.size - 1}) members.push_back(other);
  for (const int index : members) {
    Shape shape = problem;
    shape.index = index;
    const Schedule schedule = algorithm.build(shape);
    work.sends_input_only = work.sends_input_only && std::ranges::all_of(schedule.rounds, sends_input_only);
    work.loads.push_back(load_of(schedule, index, facts, problem.rounds_off));
  }
  return work;
}

PriceTerms price(const Workload& work, double scale, const GroupFacts& facts, int segments) {
  const MemberPrice member(work, scale, facts, segments);
  PriceTerms slowest;
  for (const MemberLoad& load : work.loads) {
    const PriceTerms terms = member.of(load);
    if (terms.total_us > slowest.total_us) slowest = terms;
  }
  return slowest;
}

PriceTerms price(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts, int segments) {
  return price(workload_of(algorithm, problem, facts), 1, facts, segments);
}

// Takes the bytes that the busiest member reads of others' memory, at the rate of messages. `bytes` are those of
// Spec::count.
PriceTerms price_in_node_memory(Collective collective, std::uint64_t bytes, const GroupFacts& facts) {
  if (has_own_counts(collective)) return {};
  const auto each = static_cast<double>(bytes);
  const double others = facts.size - 1;
  MemberLoad load;
  ++load.memory_steps;
  if (collective == Collective::all_reduce || collective == Collective::reduce) {  // shared out, then collected
    load.combined_bytes = each * others / facts.size;
    load.memory_bytes = 2 * load.combined_bytes;
  } else if (collective == Collective::broadcast || collective == Collective::scatter) {
    load.memory_bytes = each;
  } else if (collective != Collective::barrier) {
    load.memory_bytes = each * others;
    if (reduces(collective)) load.combined_bytes = load.memory_bytes;
  }
  return price(Workload{.loads = {load}, .first_node_loads = 1}, 1, facts);
}

std::size_t segment_that_suits(const GroupFacts& facts, int messages) {
  if (!facts.is_measured) return 0;
  const double wanted = segment_latencies * bytes_of_round(facts) * messages;
  std::size_t segment = least_suited_bytes;
  while (segment < most_suited_bytes && static_cast<double>(segment) < wanted) segment *= 2;
  return segment;
}

std::size_t segment_of_chain(const GroupFacts& facts, std::size_t bytes) {
  const std::size_t most = segment_that_suits(facts, 1);
  const double wanted = std::sqrt(static_cast<double>(bytes) * bytes_of_round(facts) / std::max(1, facts.nodes() - 1));
  return std::clamp(static_cast<std::size_t>(wanted), most / chain_parts, most);
}

}  // namespace lockstep
