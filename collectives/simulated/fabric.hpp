// SPDX-License-Identifier: Apache-2.0
// Models nodes and switches as links that packets queue for: a fat tree of two levels, described in one line. It gives
// the time that links and cores take. A packet occupies a link as long as its bytes take, and is at the next link when
// its head is there. A later packet waits, so flows on one link share its rate.
#pragma once

#include <cmath>
#include <string_view>
#include <vector>

#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"

namespace lockstep::simulated {

// Describes a fabric. Times are in microseconds, rates in bytes per microsecond; the defaults are a guess.
struct FabricShape {
  int nodes = 1;
  // Counts the members on each node.
  int members = 1;
  // Counts the nodes of a switch. 0 means one switch for all nodes.
  int nodes_per_switch = 0;
  // Counts the links up from each switch. 0 means as many as nodes, so that links are not shared.
  int uplinks = 0;
  // Gives the rate of every link between nodes, in each direction.
  double network_bytes_per_us = 12500;
  // Gives the time from one end of a link to the other.
  double network_us = 0.7;
  // Gives the rate at which a member's core copies data within its node, also those of a message from there.
  double memory_bytes_per_us = 10000;
  double memory_us = 0.4;
  // Gives the time of a core at each end of a message.
  double message_us = 0.6;
  // Gives the rate at which a core copies received data; 0 means that the interface does it.
  double received_bytes_per_us = 0;
  // Gives the rate at which a core reduces data.
  double combined_bytes_per_us = 8000;

  // Returns the number of switches.
  int switches() const { return nodes_per_switch == 0 ? 1 : (nodes + nodes_per_switch - 1) / nodes_per_switch; }
};

// Converts microseconds to a Duration, rounded to nanoseconds.
inline Duration of_us(double us) { return Duration(std::llround(us * 1000)); }

// Returns the shape with the changes in words such as "rate=100G latency=700ns switch=16 uplinks=8". Other fields stay.
// Throws Error usage for words that it does not know.
FabricShape parse_fabric(std::string_view words, FabricShape shape);

// Keeps the time at which each link is free. Packets queue in the order of the calls of pass().
class Fabric {
 public:
  explicit Fabric(const FabricShape& shape);

  const FabricShape& shape() const { return shape_; }
  int node_of(int member) const { return member / shape_.members; }
  bool are_on_one_node(int one, int other) const { return node_of(one) == node_of(other); }
  // Returns the links from one member to another, in their order. The node at the other end determines the way up, as
  // switches with static routes do.
  std::vector<int> path(int from, int to) const;

  // Gives the times at which a packet's head and tail arrive at the end of a link.
  struct PacketTiming {
    Duration head;
    Duration tail;
  };
  // Passes a packet over a link, which is then busy. `head_at` and `tail_at` are the times at which its head and its
  // tail arrive at the beginning.
  PacketTiming pass(int link, std::size_t bytes, Duration head_at, Duration tail_at);
  // Returns the time from which a link is free.
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
