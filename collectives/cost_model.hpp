// SPDX-License-Identifier: Apache-2.0
// What an algorithm would take on a group's machine: prices from its schedules, the links that they cross, and a
// table of what links cost. Every value here is equal on all members, and so is what is computed from them: only
// the basic operations on doubles are used, which every processor does alike.
#pragma once

#include <string_view>
#include <vector>

#include "collectives/algorithms/algorithms.hpp"
#include "topology/group.hpp"

namespace lockstep {

// Of one message over one kind of link.
struct LinkCost {
  Link link;
  double latency_us;
  double bytes_per_us;  // that one member moves
  std::string_view provenance;
};

// By Link.
std::span<const LinkCost> link_costs();

// What a group is like, as all its members see it.
struct GroupFacts {
  int size = 1;
  std::vector<int> node_of;         // by index; nodes are numbered in the order in which the indices reach them
  Levels levels;                    // the same the other way round
  int most_on_a_node = 1;           // members
  Link near = Link::self;           // the longest way between members of one node
  double members_per_core = 1;      // on the most crowded node; below 1 counts as 1
  double network_bytes_per_us = 0;  // of a node
  double flow_bytes_per_us = 0;     // of one connection; 0: as much as a node
  double short_bytes_per_us = 0;    // the same of a single message of 16 KiB or so
  double network_latency_us = 0;
  double near_latency_us = 0;
  // By index, where nodes have several packages with members in each, as many in all of them; none: they have not.
  std::vector<int> package_of;
  std::shared_ptr<const Levels> packages;  // these, then nodes, and what nodes stand in
  double package_latency_us = 0;           // within one
  double package_share = 1;                // of the time that bytes between packages of a node take
  std::vector<int> rack_of;                // by node; none: nobody has said
  double rack_bytes_per_us = 0;            // from a rack to all others; 0: as much as its nodes
  double far_work_us = 0;                  // of a core, for a message, at both ends together
  double near_work_us = 0;
  bool network_known = false;  // measured, or the interfaces say how fast they are
  bool is_measured = false;

  int nodes() const { return static_cast<int>(levels.nodes.size()); }
  // Some members are near and others far, so that it pays to treat them differently.
  bool has_levels() const { return nodes() > 1 && nodes() < size; }
  // What algorithms see of it: nodes, or of one member each what these stand in; by messages also packages; nothing:
  // all are alike.
  const Levels* seen_levels(bool by_memory) const {
    if (packages && !by_memory) return packages.get();
    return has_levels() ? &levels : nodes() == size ? levels.above.get() : nullptr;
  }
};

GroupFacts facts_of(const Topology& topology, const Group& group);

// What a member does in all rounds.
struct Load {
  double laps = 0;
  double work_us = 0;   // of a core, for its messages
  double meetings = 0;  // in the memory of the node
  double latency_us = 0;
  double near_bytes = 0;  // in messages
  double room_bytes = 0;  // in the memory of the node
  double held_bytes = 0;  // the same, while who sends them on waits for all there
  double far_bytes = 0;
  double rack_bytes = 0;  // of these, those that leave the rack
  double flow_bytes = 0;  // of these, in each round those of the largest message
  double combined_bytes = 0;
};

// What a sample of the members does: those of the first node, then two others.
struct Workload {
  std::vector<Load> loads = {};
  std::size_t near_ones = 0;
  double rounds = 0;              // messages that follow each other
  double rack_bytes = 0;          // that leave the first rack, or come to it
  bool passes_nothing_on = true;  // what is sent was there from the beginning
  int pieces = 1;                 // that go from member to member one behind the other
};

Workload workload_of(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts);
// Of a problem that has so many times the bytes. Where that has fewer bytes than members, messages that would be empty
// are counted, too.
// `segments` flow through its stages one behind the other, so that what is done within nodes and between them overlaps.
double price_us(const Workload& work, double scale, const GroupFacts& facts, int segments = 1);

// The time from the first message to the last, in microseconds: of the member that is busiest, or of the network
// interface of its node. The problem is counted in bytes: elements of one byte. One that rounds off has messages
// between nodes of half as many bytes.
double price_us(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts, int segments = 1);
// Returns the time of one collective of all members in their node's memory, from starting guesses. For people: the
// planner takes this way wherever it can. 0: the members do not know each other's counts.
double price_of_meeting_us(Collective collective, std::uint64_t bytes, const GroupFacts& facts);
// As long as makes the messages of a round between so many nodes take several times as long as their latency; 0: nobody
// has measured.
std::size_t segment_that_suits(const GroupFacts& facts);

}  // namespace lockstep
