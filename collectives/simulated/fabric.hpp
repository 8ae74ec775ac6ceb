// SPDX-License-Identifier: Apache-2.0
// Nodes and the switches between them as links that packets queue for: a fat tree of two levels, described in a line,
// with the time that links and cores take. A packet holds a link as long as its bytes take and is at the next one when
// its head is; who comes later waits, so that flows that share a link share its rate.
#pragma once

#include <cmath>
#include <string_view>
#include <vector>

#include "topology/base/text.hpp"

namespace lockstep::simulated {

struct FabricShape {
  int nodes = 1;
  int members = 1;                      // on each node
  int nodes_per_switch = 0;             // 0: one switch for all
  int uplinks = 0;                      // of a switch; 0: as many as nodes, so that nothing is shared
  double network_bytes_per_us = 12500;  // of every link between nodes, in each direction
  double network_us = 0.7;              // from one end of a link to the other
  double memory_bytes_per_us = 10000;   // between members of a node, that one of them moves
  double memory_us = 0.4;
  double message_us = 0.6;              // of a core, at each end of a message
  double received_bytes_per_us = 0;     // of a core, for what it receives; 0: the interface does it
  double combined_bytes_per_us = 8000;  // of a core, that adds it to something

  int switches() const { return nodes_per_switch == 0 ? 1 : (nodes + nodes_per_switch - 1) / nodes_per_switch; }
};

inline Duration of_us(double us) { return Duration(std::llround(us * 1000)); }

// "rate=100G latency=700ns switch=16 uplinks=8": what is not named stays. Throws Error usage for what it is not.
FabricShape parse_fabric(std::string_view words, FabricShape shape);

class Fabric {
 public:
  explicit Fabric(const FabricShape& shape);

  const FabricShape& shape() const { return shape_; }
  int node_of(int member) const { return member / shape_.members; }
  bool are_near(int one, int other) const { return node_of(one) == node_of(other); }
  // Links from one member to another, in their order. The way up is chosen by the node at the other end, as switches
  // with static routes do.
  std::vector<int> path(int from, int to) const;

  // A packet's head is at a link: when it is at the next one, and when its tail is.
  struct PacketTiming {
    Duration head;
    Duration tail;
  };
  // `tail_at`: when its tail is here.
  PacketTiming pass(int link, std::size_t bytes, Duration head_at, Duration tail_at);
  Duration free_at(int link) const { return links_[static_cast<std::size_t>(link)].free; }
  std::size_t links() const { return links_.size(); }

 private:
  struct FabricLink {
    double bytes_per_ns = 1;
    Duration latency{};
    Duration free{};
  };
  int memory(int member) const { return member; }
  int up(int node) const { return shape_.nodes * shape_.members + node; }
  int down(int node) const { return up(shape_.nodes) + node; }
  int uplink(int number, int which) const { return down(shape_.nodes) + number * uplinks_ + which; }
  int downlink(int number, int which) const { return uplink(shape_.switches(), 0) + number * uplinks_ + which; }

  FabricShape shape_;
  int uplinks_;
  std::vector<FabricLink> links_;
};

}  // namespace lockstep::simulated
