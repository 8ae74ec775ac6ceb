// SPDX-License-Identifier: Apache-2.0
// Finds the facts of a group of members for the cost model: its nodes, the levels above them, and the network.
#include <algorithm>
#include <map>
#include <set>

#include "collectives/cost_model.hpp"

namespace lockstep {
namespace {

// Returns the total rate of a node's fastest interfaces in bytes per microsecond; 0: none tells it.
double network_rate(const MachineShape& machine) {
  std::int64_t fastest = 0;
  for (const Nic& nic : machine.nics) fastest = std::max(fastest, nic.mbit_per_s);
  const auto count = std::ranges::count(machine.nics, fastest, &Nic::mbit_per_s);
  return static_cast<double>(fastest) * static_cast<double>(count) / 8;
}

// Returns the number for the most crowded node of the group. It examines equal nodes once.
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
  facts.network_bytes_per_us = facts.network_known ? slowest : link_cost_of(Link::network).bytes_per_us;
  facts.short_bytes_per_us = facts.network_bytes_per_us;
  facts.network_latency_us = link_cost_of(Link::network).latency_us;
  facts.node_latency_us = link_cost_of(facts.node_link).latency_us;
  facts.network_work_us = cost::network_work_us;
  facts.node_work_us = cost::node_work_us;
  const Topology::Network& measured = topology.network();
  if (measured.bytes_per_us > 0) {
    facts.network_known = facts.is_measured = true;
    facts.network_bytes_per_us = measured.bytes_per_us;
    facts.flow_bytes_per_us = measured.flow_bytes_per_us;
    facts.short_bytes_per_us = std::max(measured.bytes_per_us, measured.short_bytes_per_us);
    facts.network_latency_us = measured.latency_us;
    if (measured.node_latency_us > 0) facts.node_latency_us = measured.node_latency_us;
    // A core's work for a message is a part of the message's time.
    facts.network_work_us = std::min<double>(cost::network_work_us, facts.network_latency_us);
    facts.node_work_us = std::min<double>(cost::node_work_us, facts.node_latency_us);
    facts.members_per_core = std::max(facts.members_per_core, measured.crowd);
  }
}

// Returns the name of the next outer level: "row1" for "row1/rack3", and nothing for "row1".
std::string outer(const std::string& name) {
  const std::size_t slash = name.rfind('/');
  return slash == std::string::npos ? std::string() : name.substr(0, slash);
}

// Groups names by the levels that they name. A level in which all are alone, or all together, is left out.
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

// Adds packages as a level if each member's cores lie within one package on all nodes, and the packages are even.
void add_packages(GroupFacts& facts, const Topology& topology, const Group& group) {
  std::map<std::pair<int, int>, int> number;  // by node and package
  Levels packages;
  Levels nodes;
  nodes.nodes.resize(facts.levels.nodes.size());
  std::vector<int> package_of;
  Link within = Link::self;
  for (int index = 0; index < facts.size; ++index) {
    const int rank = group.rank(index);
    const int package = topology.shared_units_of(rank).package;
    if (package == none) return;
    const int node = facts.node_of[static_cast<std::size_t>(index)];
    const auto [entry, is_new] = number.try_emplace({node, package}, static_cast<int>(packages.nodes.size()));
    if (is_new) {
      packages.nodes.emplace_back();
      nodes.nodes[static_cast<std::size_t>(node)].push_back(entry->second);
    }
    auto& members = packages.nodes[static_cast<std::size_t>(entry->second)];
    members.push_back(index);
    package_of.push_back(entry->second);
    within = std::max(within, topology.link(group.rank(members.front()), rank));
  }
  const std::size_t each = packages.nodes.front().size();
  const bool is_even = std::ranges::all_of(packages.nodes, [&](const auto& members) { return members.size() == each; });
  if (!is_even || each < 2 || packages.nodes.size() == nodes.nodes.size()) return;
  nodes.above = facts.levels.above;
  if (nodes.nodes.size() > 1) packages.above = std::make_shared<const Levels>(std::move(nodes));
  facts.packages = std::make_shared<const Levels>(std::move(packages));
  facts.package_of = std::move(package_of);
  facts.package_share = link_cost_of(facts.node_link).bytes_per_us / link_cost_of(within).bytes_per_us;
  facts.package_latency_us =
      facts.node_latency_us * link_cost_of(within).latency_us / link_cost_of(facts.node_link).latency_us;
}

}  // namespace

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
    facts.node_link = std::max(facts.node_link, topology.link(group.rank(members.front()), rank));
  }
  add_racks(facts, topology, group);
  facts.members_per_core = most_members_per_core(topology, nodes);
  add_network(facts, topology, nodes);
  add_packages(facts, topology, group);
  return facts;
}

}  // namespace lockstep
