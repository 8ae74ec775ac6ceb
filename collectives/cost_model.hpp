// SPDX-License-Identifier: Apache-2.0
// Prices an algorithm on a group's machine from its schedules, the links that they cross, and a table of link costs.
// All inputs are equal on all members, so all members compute equal prices. Only the basic operations on doubles are
// used, since every processor rounds those alike.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithms/algorithms.hpp"
#include "topology/group.hpp"

namespace lockstep {

// Holds the cost of one message over one kind of link.
struct LinkCost {
  Link link;
  double latency_us;
  double bytes_per_us;  // for one member
  // Names the source of the numbers, such as a guess or a measurement.
  std::string_view provenance;
};

// Returns the table of link costs; entry i is for link i.
std::span<const LinkCost> link_costs();

// Describes a group's machine as all its members see it. Times are in microseconds, rates in bytes per microsecond.
struct GroupFacts {
  int size = 1;
  std::vector<int> node_of;         // by index; nodes are numbered in the order in which the indices reach them
  Levels levels;                    // the same relation, by node
  int most_on_a_node = 1;           // members of the largest node
  Link near = Link::self;           // the farthest link between members of one node
  double members_per_core = 1;      // on the most crowded node, and at least 1
  double network_bytes_per_us = 0;  // of a node
  double flow_bytes_per_us = 0;     // of one connection; 0: as much as a node
  double short_bytes_per_us = 0;    // of a node, for single messages of about 16 KiB
  double network_latency_us = 0;
  double near_latency_us = 0;
  // Holds each member's package by index, if nodes have several packages with equally many members in each; else empty.
  std::vector<int> package_of;
  std::shared_ptr<const Levels> packages;  // packages, with nodes and their racks above; null: none
  double package_latency_us = 0;           // within a package
  double package_share = 1;      // time of a byte within a package, relative to one between packages of a node
  std::vector<int> rack_of;      // by node; empty: the racks are not known
  double rack_bytes_per_us = 0;  // from a rack to all others; 0: as much as its nodes
  double far_work_us = 0;        // time of a core for a message between nodes, at both ends together
  // Is the same for a message within a node.
  double near_work_us = 0;
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

// Sums one member's work in all rounds of a schedule. Times are in microseconds.
struct Load {
  // Counts the rounds with messages, each repetition on its own.
  double laps = 0;
  double work_us = 0;   // of a core, for its messages
  double meetings = 0;  // steps in the node's memory
  double latency_us = 0;
  double near_bytes = 0;  // in messages within the node
  double room_bytes = 0;  // in the node's memory
  double held_bytes = 0;  // in the node's memory, if a leader waits there for all before it sends
  double far_bytes = 0;   // in messages between nodes
  double rack_bytes = 0;  // the part of far_bytes that leaves the rack
  double flow_bytes = 0;  // the part of far_bytes in the largest message of each round
  double combined_bytes = 0;
};

// Sums the work of a sample of members: those of the first node, then two others.
struct Workload {
  std::vector<Load> loads = {};
  std::size_t near_ones = 0;      // loads of members of the first node
  double rounds = 0;              // messages that follow each other
  double rack_bytes = 0;          // bytes that leave the first rack or enter it, the larger number
  bool passes_nothing_on = true;  // all messages send the input
  int pieces = 1;                 // parts that go from member to member one behind another
};

// Builds the schedules of the sample and sums their work. `problem` is the root's shape, in elements of one byte.
Workload workload_of(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts);
// Returns the price, in microseconds, of a problem with `scale` times the bytes. If the scaled one has fewer bytes
// than members, messages that would be empty count too. `segments` flow through the stages one behind another, so that
// work within nodes and between them overlaps.
double price_us(const Workload& work, double scale, const GroupFacts& facts, int segments = 1);

// Returns the time from the first message to the last, in microseconds: that of the busiest member, or of its node's
// network interface. The problem is counted in elements of one byte. If it rounds off, messages between nodes have half
// as many bytes.
double price_us(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts, int segments = 1);
// Returns the time, in microseconds, of one collective of all members in their node's memory, from starting guesses. It
// serves people only; the planner takes this way wherever it can. 0: members do not know each other's counts.
double price_of_meeting_us(Collective collective, std::uint64_t bytes, const GroupFacts& facts);
// Returns a segment size in bytes at which a round's messages between nodes take several times their latency. 0: the
// network was not measured.
std::size_t segment_that_suits(const GroupFacts& facts);

}  // namespace lockstep
