// SPDX-License-Identifier: Apache-2.0
// Which subnets all nodes share, and which only look as if they did (a bridge for containers has the
// same address on every node). MPI may pick any of them, and then waits for ever.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <set>

#include "tools/lockstep/doctor_checks.hpp"

namespace lockstep::command::check {
namespace {

struct Subnet {
  int family = AF_INET;
  int bits = 0;
  std::array<unsigned char, 16> network{};
  auto operator<=>(const Subnet&) const = default;  // NOLINT(modernize-use-nullptr): the tool's mistake

  int width() const { return family == AF_INET ? 32 : 128; }
  bool is_point() const { return bits == width(); }  // an address alone: says nothing about who is near
  std::string to_string() const;
};

std::string Subnet::to_string() const {
  std::array<char, INET6_ADDRSTRLEN> name{};
  inet_ntop(family, network.data(), name.data(), name.size());
  return text(name.data(), "/", bits);
}

// "10.0.0.1/24" is 10.0.0.0/24.
std::optional<Subnet> subnet_of(std::string_view address) {
  const std::size_t slash = address.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const std::string name(address.substr(0, slash));
  Subnet subnet;
  subnet.family = name.find(':') == std::string::npos ? AF_INET : AF_INET6;
  if (inet_pton(subnet.family, name.c_str(), subnet.network.data()) != 1) return std::nullopt;
  const auto bits = parse_integer(address.substr(slash + 1));
  if (!bits || *bits < 0 || *bits > subnet.width()) return std::nullopt;
  subnet.bits = static_cast<int>(*bits);
  for (int bit = subnet.bits; bit < subnet.width(); ++bit) {
    auto& byte = subnet.network.at(static_cast<std::size_t>(bit) / 8);
    byte = static_cast<unsigned char>(byte & ~(0x80U >> (static_cast<unsigned>(bit) % 8)));
  }
  return subnet;
}

struct Side {  // a subnet as the nodes see it
  IndexSet nodes;
  std::set<std::string> interfaces;
  std::int64_t mbit_per_s = std::numeric_limits<std::int64_t>::max();  // the slowest
  bool twins = false;                                                  // an address that several nodes have
};

struct Map {
  IndexSet nodes;  // one for each set of interfaces: nodes on one kernel and namespace have the same ones
  std::map<Subnet, Side> subnets;
};

Map map_of(const View& view) {
  Map map;
  std::set<std::string> seen;
  std::map<std::string, int> owner;  // of an address
  for (int node = 0; node < view.topology.node_count(); ++node) {
    const Facts& facts = view.first_of_node(node);
    if (!seen.insert(text(facts.kernel, " ", facts.net_namespace)).second) continue;
    map.nodes.insert(node);
    const auto& nics = view.topology.machine_of_node(node).nics;
    for (const NicAddress& each : view.topology.node(node).addresses) {
      const auto subnet = subnet_of(each.address);
      if (!subnet) continue;
      Side& side = map.subnets[*subnet];
      const Nic& nic = nics.at(static_cast<std::size_t>(each.nic));
      side.nodes.insert(node);
      side.interfaces.insert(nic.name);
      side.mbit_per_s = std::min(side.mbit_per_s, nic.mbit_per_s);
      const auto [known, is_new] = owner.emplace(each.address, node);
      side.twins = side.twins || (!is_new && known->second != node);
    }
  }
  return map;
}

using Entry = std::pair<const Subnet, Side>;

// The subnet to use: all nodes are in it; the fastest, and rather version 4, which MPI options can name.
const Entry* common_subnet(const Map& map) {
  const Entry* best = nullptr;
  const auto better = [](const Entry& a, const Entry& b) {
    if (a.second.mbit_per_s != b.second.mbit_per_s) return a.second.mbit_per_s > b.second.mbit_per_s;
    return a.first < b.first;
  };
  for (const Entry& each : map.subnets) {
    const bool good = each.second.nodes.size() == map.nodes.size() && !each.second.twins && !each.first.is_point();
    if (good && (best == nullptr || better(each, *best))) best = &each;
  }
  return best;
}

std::string names(const Side& side) {
  return join(std::vector<std::string>(side.interfaces.begin(), side.interfaces.end()), ",");
}

std::string mend(const View& view, const Map& map, const Entry* common) {
  if (!is_open_mpi(view.of(0)))
    return common == nullptr ? "mpiexec -iface NAME, with the interface that reaches all nodes"
                             : text("mpiexec -iface ", *common->second.interfaces.begin(), " ...");
  if (common != nullptr) {
    // Open MPI takes subnets of version 4 only; interfaces otherwise.
    const std::string which = common->first.family == AF_INET ? common->first.to_string() : names(common->second);
    return text("mpirun --mca btl_tcp_if_include ", which, " --mca oob_tcp_if_include ", which, " ...");
  }
  std::vector<std::string> bad{"127.0.0.0/8"};
  for (const auto& [subnet, side] : map.subnets) {
    if (side.twins && subnet.family == AF_INET) bad.push_back(subnet.to_string());
  }
  return text("mpirun --mca btl_tcp_if_exclude ", join(bad, ","), " --mca oob_tcp_if_exclude ", join(bad, ","), " ...");
}

IndexSet ranks_of(const View& view, const IndexSet& nodes) {
  IndexSet ranks;
  for (const int node : nodes.members()) ranks.insert(view.ranks_of_node(node));
  return ranks;
}

// Subnets that some nodes have and others have not, where one that all have would do.
void judge_partial(const View& view, const Map& map, const Entry& common, Outcome& outcome) {
  for (const auto& [subnet, side] : map.subnets) {
    if (side.twins || subnet.is_point() || side.nodes.size() == map.nodes.size()) continue;
    outcome.add({Grade::slow, ranks_of(view, side.nodes),
                 text("only ", side.nodes.size(), " of ", map.nodes.size(), " nodes are in ", subnet.to_string(), " (",
                      names(side), ")"),
                 "MPI may try it towards nodes that it does not reach, and wait", mend(view, map, &common)});
  }
}

std::string speed(std::int64_t mbit_per_s) { return mbit_per_s == 0 ? "" : text(", ", mbit_per_s, " Mbit/s"); }

}  // namespace

Outcome network(const View& view) {
  const Map map = map_of(view);
  if (map.nodes.size() < 2) return {"one machine: nothing goes over it", {}};
  const Entry* common = common_subnet(map);
  Outcome outcome;
  for (const auto& [subnet, side] : map.subnets) {
    if (!side.twins) continue;
    outcome.add({common == nullptr ? Grade::broken : Grade::slow, ranks_of(view, side.nodes),
                 text("several nodes have the same address in ", subnet.to_string(), " (", names(side), ")"),
                 "each node's own, it leads nowhere; MPI takes it for a way to the others, and waits for ever",
                 mend(view, map, common)});
  }
  if (common != nullptr) {
    judge_partial(view, map, *common, outcome);
    outcome.summary = text(map.nodes.size(), " nodes share ", common->first.to_string(), " (", names(common->second),
                           speed(common->second.mbit_per_s), ")");
  } else if (outcome.findings.empty()) {
    outcome.add({Grade::note, view.everybody(),
                 "there is no subnet that all nodes share: what they send goes through a router",
                 "routers add latency, and firewalls between them may let only some ports pass",
                 "nothing if this is meant; ip route on each node shows the ways"});
  }
  return outcome;
}

}  // namespace lockstep::command::check
