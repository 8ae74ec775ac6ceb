// SPDX-License-Identifier: Apache-2.0
// Computes the time below which no algorithm can be on a fabric. It depends on the call and the fabric only.
#include <algorithm>
#include <map>
#include <numeric>

#include "bench/limits.hpp"
#include "bench/simulation.hpp"
#include "topology/description.hpp"

namespace lockstep::bench {
namespace {

using simulated::FabricShape;

// Returns the least traffic if the members are on groups of these sizes.
MinimumTraffic traffic_of(const Subject& subject, const std::vector<int>& groups) {
  std::vector<DescribedNodes> described;
  described.reserve(groups.size());
  for (const int members : groups) described.push_back({.shape = {.pus = {{}}}, .count = 1, .ranks = members});
  std::vector<int> ranks(static_cast<std::size_t>(std::accumulate(groups.begin(), groups.end(), 0)));
  std::iota(ranks.begin(), ranks.end(), 0);
  return minimum_traffic(subject, static_cast<int>(ranks.size()), describe(described), ranks);
}

// Returns the time of the bytes that must leave or enter a switch.
double uplinks_us(const Subject& subject, const FabricShape& fabric) {
  if (fabric.switches() == 1 || fabric.uplinks == 0) return 0;
  std::vector<int> groups;
  for (int left = fabric.nodes; left > 0; left -= fabric.nodes_per_switch)
    groups.push_back(std::min(left, fabric.nodes_per_switch) * fabric.members);
  return traffic_of(subject, groups).link / (fabric.uplinks * fabric.network_bytes_per_us);
}

// Returns the time in which the cores can write all outputs and combine all inputs. Interfaces write outputs as well,
// as fast as their links. Everything else in an output is a copy, or the result of a combination.
double cores_us(const Subject& subject, const FabricShape& fabric) {
  const double members = fabric.members;
  const double n = members * fabric.nodes;
  const auto all = static_cast<double>(bytes_of(subject, fabric.members * fabric.nodes));
  const double copies = fabric.memory_bytes_per_us;
  const double combines = fabric.combined_bytes_per_us;
  const double link = fabric.nodes > 1 ? fabric.network_bytes_per_us : 0;
  switch (subject.collective) {
    case Collective::broadcast:
      return (fabric.nodes > 1 ? members : members - 1) * all / (link + members * copies);
    case Collective::all_gather:
    case Collective::all_to_all:
      return members * all * (1 - 1 / n) / (link + members * copies);
    case Collective::reduce:
    case Collective::reduce_scatter:
    case Collective::scan:
      return (n - 1) / n * all / combines;
    case Collective::exscan:
      return (n - 2) / n * all / combines;
    case Collective::all_reduce: {
      // One core combines an element for the last time, and writes an output with it. All others get it by a copy, or
      // by one more combination.
      const double writes = std::max(copies, combines);
      return (n - 1) * all * (1 / combines + 1 / writes) / (n + fabric.nodes * link / writes);
    }
    default:
      return 0;
  }
}

// Returns the time after which all nodes can have heard from one, or one from all. Every member of a node that has
// heard sends messages one after another.
double rounds_us(const FabricShape& fabric) {
  if (fabric.nodes == 1) return fabric.memory_us;
  const double message = 2 * (fabric.message_us + fabric.network_us);
  std::map<double, double> arrivals{{message, 1}};  // by time: the nodes of which each member's next message arrives
  for (double informed = 1;;) {
    const auto [time, senders] = *arrivals.begin();
    const double more = senders * fabric.members;
    informed += more;
    if (informed >= fabric.nodes) return time;
    arrivals.erase(arrivals.begin());
    arrivals[time + fabric.message_us] += senders;
    arrivals[time + message] += more;
  }
}

}  // namespace

Limit least_time(const Subject& subject, const FabricShape& fabric) {
  const bool far = fabric.nodes > 1;
  const double message = far ? 2 * (fabric.message_us + fabric.network_us) : 2 * fabric.message_us + fabric.memory_us;
  const std::vector<int> nodes(static_cast<std::size_t>(fabric.nodes), fabric.members);
  const MinimumTraffic moves = traffic_of(subject, nodes);
  const double link_us =
      message + (far ? moves.link / fabric.network_bytes_per_us : moves.foreign / fabric.memory_bytes_per_us);
  Limit limit{link_us, "link"};
  const auto consider = [&](double us, std::string_view what) {
    if (us > limit.us) limit = {us, std::string(what)};
  };
  consider(message + uplinks_us(subject, fabric), "uplink");
  consider(cores_us(subject, fabric), "cores");
  if (subject.collective != Collective::sendrecv) consider(rounds_us(fabric), "rounds");
  // The message and the bytes of a link alone are a bound that everybody can verify. Others never exceed it by more.
  constexpr double most_factor = 2.5;
  limit.us = std::min(limit.us, most_factor * link_us);
  return limit;
}

}  // namespace lockstep::bench
