// SPDX-License-Identifier: Apache-2.0
// Predicts the time of an algorithm from the machine of a group, the algorithm's schedules and the constants in
// cost_constants.hpp. This is the formula; a call takes as long as its slowest member:
//
//   time = rounds + network + node + combine - overlap
//
//   rounds  = latencies of the member's rounds; on shared cores the work for its messages, if that takes longer (alpha)
//   network = bytes on the busiest link / its rate: of a connection, a node's interface or a rack (beta between nodes)
//   node    = bytes in messages within the node and in its shared memory / rate of the farthest link (beta in nodes)
//   combine = bytes that a core reduces or copies / combine_rate (gamma)
//   overlap = time in which network, node and combine run at once, because pieces or segments follow each other
//
// On a node with c members for each core, bytes and work of a core count c times. If the chain of all messages is
// longer than the member's own rounds, its rounds and bytes in messages count as many times more, because it waits for
// others. So do the bytes of its node's interface, where several nodes pass them on; of several segments, only those of
// the first one. On shared cores all segments wait, and so do steps and bytes in the node's memory.
// MemberPrice in cost_model.cpp has one function for each term.
//
// All inputs are equal on all members, so all members predict equal times. Only the basic operations on doubles are
// used, since every processor rounds those alike.
#pragma once

#include <vector>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/cost_constants.hpp"
#include "topology/group.hpp"

namespace lockstep {

// Describes a group's machine as all its members see it. Times are in microseconds, rates in bytes per microsecond.
struct GroupFacts {
  int size = 1;
  std::vector<int> node_of;         // by index; nodes are numbered in the order in which the indices reach them
  Levels levels;                    // the same relation, by node
  int most_on_a_node = 1;           // members of the largest node
  Link node_link = Link::self;      // the farthest link between members of one node
  double members_per_core = 1;      // on the most crowded node, and at least 1
  double network_bytes_per_us = 0;  // of a node
  double flow_bytes_per_us = 0;     // of one connection; 0: as much as a node
  double short_bytes_per_us = 0;    // of a node, for single messages of about 16 KiB
  double network_latency_us = 0;
  double node_latency_us = 0;
  // Holds each member's package by index, if nodes have several packages with equally many members in each; else empty.
  std::vector<int> package_of;
  std::shared_ptr<const Levels> packages;  // packages, with nodes and their racks above; null: none
  double package_latency_us = 0;           // within a package
  double package_share = 1;      // time of a byte within a package, relative to one between packages of a node
  std::vector<int> rack_of;      // by node; empty: the racks are not known
  double rack_bytes_per_us = 0;  // from a rack to all others; 0: as much as its nodes
  double network_work_us = 0;    // time of a core for a message between nodes, at both ends together
  // Is the same for a message within a node.
  double node_work_us = 0;
  bool network_known = false;  // measured, or told by the interfaces
  bool is_measured = false;    // the network was measured

  int nodes() const { return static_cast<int>(levels.nodes.size()); }
  // True if some members share a node and others do not, so that it pays to treat them differently.
  bool has_levels() const { return nodes() > 1 && nodes() < size; }
  // Returns the levels that an algorithm sees; null: all members are alike. Packages come first, unless the algorithm
  // works in a node's memory. Then come nodes or, if every node has one member, the levels above nodes.
  const Levels* seen_levels(bool by_memory) const {
    if (packages && !by_memory) return packages.get();
    return has_levels() ? &levels : nodes() == size ? levels.above.get() : nullptr;
  }
};

// Returns the facts of a group. They are equal on all members, because the topology is.
GroupFacts facts_of(const Topology& topology, const Group& group);

// Sums one member's work in all rounds of a schedule.
struct MemberLoad {
  double rounds = 0;    // rounds with messages, each repetition on its own
  double messages = 0;  // in each round those sent or those received, whichever are more
  double latency_us = 0;
  double work_us = 0;         // of a core, for its messages
  double memory_steps = 0;    // steps in the node's memory
  double node_bytes = 0;      // in messages within the node
  double memory_bytes = 0;    // in the node's memory
  double leader_bytes = 0;    // in the node's memory, if a leader waits there for all before it sends
  double network_bytes = 0;   // in messages between nodes: in each round, the larger of sent and received
  double sent_bytes = 0;      // between nodes
  double received_bytes = 0;  // between nodes
  double rack_bytes = 0;      // the part of network_bytes that leaves the rack
  double flow_bytes = 0;      // the part of network_bytes in the largest message of each round
  double combined_bytes = 0;  // reduced or copied by a core
};

// Sums the work of a sample of members: those of the first node, then two others.
struct Workload {
  std::vector<MemberLoad> loads = {};
  std::size_t first_node_loads = 0;  // the first so many loads are of members of the first node
  double chain_rounds = 0;           // messages that follow each other
  double rack_bytes = 0;             // bytes that leave the first rack or enter it, the larger number
  bool sends_input_only = true;      // no message passes on received data
  int pieces = 1;                    // parts that go from member to member one behind another
  bool relays = false;               // segments follow each other closely, even if members share cores
  bool flows = false;                // only the first segment has steps in a node's memory
};

// Holds a predicted time and the terms of the formula above, in microseconds.
struct PriceTerms {
  double rounds_us = 0;
  double network_us = 0;
  double node_us = 0;
  double combine_us = 0;
  double overlap_us = 0;
  double total_us = 0;
};

// Builds the schedules of the sample and sums their work. `problem` is the root's shape, in elements of one byte.
Workload workload_of(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts);
// Predicts the time of a problem with `scale` times the bytes. If the scaled one has fewer bytes than members, messages
// that would be empty count too. `segments` flow through the stages one behind another, so that work within nodes and
// between them overlaps.
PriceTerms price(const Workload& work, double scale, const GroupFacts& facts, int segments = 1);

// Predicts the time from the first message to the last. The problem is counted in elements of one byte. If it rounds
// off, messages between nodes have half as many bytes.
PriceTerms price(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts, int segments = 1);
// Predicts the time of one collective of all members in their node's memory. It serves people only; the planner takes
// this way wherever it can. All zeros mean that members do not know each other's counts.
PriceTerms price_in_node_memory(Collective collective, std::uint64_t bytes, const GroupFacts& facts);
// Returns a segment size in bytes at which a round's messages between nodes take several times their latency, if a
// round divides the segment into so many messages. 0: the network was not measured.
std::size_t segment_that_suits(const GroupFacts& facts, int messages);
// Returns the segment with which a chain of nodes ends first. Each segment costs a round, and each link is idle until
// the first one comes. 0: the network was not measured.
std::size_t segment_of_chain(const GroupFacts& facts, std::size_t bytes);

}  // namespace lockstep
