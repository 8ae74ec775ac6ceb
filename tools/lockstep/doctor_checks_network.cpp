// SPDX-License-Identifier: Apache-2.0
// Checks the subnets of the nodes. Some are only seemingly common: a bridge for containers has the same address on
// every node. MPI may pick any of them, and then waits for ever.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "tools/lockstep/doctor_checks.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command::check {
namespace {

struct Subnet {
  int family = AF_INET;
  int bits = 0;
  std::array<unsigned char, 16> network{};
  auto operator<=>(const Subnet&) const = default;  // NOLINT(modernize-use-nullptr): the tool's mistake

  int width() const { return family == AF_INET ? 32 : 128; }
  bool is_point() const { return bits == width(); }  // a single address tells nothing about neighbours
  std::string to_string() const;
};

std::string Subnet::to_string() const {
  std::array<char, INET6_ADDRSTRLEN> name{};
  inet_ntop(family, network.data(), name.data(), name.size());
  return text(name.data(), "/", bits);
}

// Returns 10.0.0.0/24 for "10.0.0.1/24".
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

struct SubnetUse {  // a subnet as the nodes see it
  IndexSet nodes;
  std::set<std::string> interfaces;
  std::int64_t mbit_per_s = std::numeric_limits<std::int64_t>::max();  // the slowest
  bool twins = false;                                                  // several nodes have the same address
};

struct SubnetMap {
  IndexSet nodes;  // one for each set of interfaces: nodes on one kernel and namespace have the same ones
  std::map<Subnet, SubnetUse> subnets;
};

SubnetMap map_of(const JobView& view) {
  SubnetMap map;
  std::set<std::string> seen;
  std::map<std::string, int> owner;  // by address
  for (int node = 0; node < view.topology.node_count(); ++node) {
    const Facts& facts = view.first_of_node(node);
    if (!seen.insert(text(facts.kernel, " ", facts.net_namespace)).second) continue;
    map.nodes.insert(node);
    const auto& nics = view.topology.machine_of_node(node).nics;
    for (const NicAddress& each : view.topology.node(node).addresses) {
      const auto subnet = subnet_of(each.address);
      if (!subnet) continue;
      SubnetUse& side = map.subnets[*subnet];
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

using SubnetEntry = std::pair<const Subnet, SubnetUse>;

// Returns the fastest subnet that all nodes share. It prefers version 4, which MPI options can name.
const SubnetEntry* common_subnet(const SubnetMap& map) {
  const SubnetEntry* best = nullptr;
  const auto better = [](const SubnetEntry& a, const SubnetEntry& b) {
    if (a.second.mbit_per_s != b.second.mbit_per_s) return a.second.mbit_per_s > b.second.mbit_per_s;
    return a.first < b.first;
  };
  for (const SubnetEntry& each : map.subnets) {
    const bool good = each.second.nodes.size() == map.nodes.size() && !each.second.twins && !each.first.is_point();
    if (good && (best == nullptr || better(each, *best))) best = &each;
  }
  return best;
}

std::string interface_names(const SubnetUse& side) {
  return join(std::vector<std::string>(side.interfaces.begin(), side.interfaces.end()), ",");
}

std::string fix(const JobView& view, const SubnetMap& map, const SubnetEntry* common) {
  if (!is_open_mpi(view.of(0)))
    return common == nullptr ? "mpiexec -iface NAME, with the interface that reaches all nodes"
                             : text("mpiexec -iface ", *common->second.interfaces.begin(), " ...");
  if (common != nullptr) {
    // Open MPI accepts subnets of version 4 only; otherwise it needs interfaces.
    const std::string which =
        common->first.family == AF_INET ? common->first.to_string() : interface_names(common->second);
    return text("mpirun --mca btl_tcp_if_include ", which, " --mca oob_tcp_if_include ", which, " ...");
  }
  std::vector<std::string> bad{"127.0.0.0/8"};
  for (const auto& [subnet, side] : map.subnets) {
    if (side.twins && subnet.family == AF_INET) bad.push_back(subnet.to_string());
  }
  return text("mpirun --mca btl_tcp_if_exclude ", join(bad, ","), " --mca oob_tcp_if_exclude ", join(bad, ","), " ...");
}

IndexSet ranks_of(const JobView& view, const IndexSet& nodes) {
  IndexSet ranks;
  for (const int node : nodes.members()) ranks.insert(view.ranks_of_node(node));
  return ranks;
}

// Reports subnets that only some nodes have, if there is one that all have.
void judge_partial(const JobView& view, const SubnetMap& map, const SubnetEntry& common, CheckOutcome& outcome) {
  for (const auto& [subnet, side] : map.subnets) {
    if (side.twins || subnet.is_point() || side.nodes.size() == map.nodes.size()) continue;
    outcome.add({Grade::slow, ranks_of(view, side.nodes),
                 text("only ", side.nodes.size(), " of ", map.nodes.size(), " nodes are in ", subnet.to_string(), " (",
                      interface_names(side), ")"),
                 "MPI may try it towards nodes that it does not reach, and wait", fix(view, map, &common)});
  }
}

// Holds the measured rate from one machine to the next.
struct LinkRate {
  int from = 0;  // nodes
  int to = 0;
  double mbit_per_s = 0;
};

// Returns the rates that were tried, in the order of machines.
std::vector<LinkRate> link_rates(const JobView& view, const SubnetMap& map) {
  const std::vector<int> nodes = map.nodes.members();
  std::vector<LinkRate> links;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const double rate = view.first_of_node(nodes[i]).link_mbit_per_s;
    if (rate > 0) links.push_back({nodes[(i + nodes.size() - 1) % nodes.size()], nodes[i], rate});
  }
  return links;
}

// Describes the rates. A virtual interface reports the rate of its driver, but not the rate of the link.
std::string speed(std::int64_t claimed, const std::vector<LinkRate>& links) {
  const std::string claims = claimed == 0 ? "" : text(", which claims ", claimed, " Mbit/s");
  if (links.empty()) return claimed == 0 ? "" : text(claims, "; `lockstep links` measures");
  const auto slowest = std::ranges::min_element(links, {}, &LinkRate::mbit_per_s);
  return text(claims, "; at least ", std::llround(slowest->mbit_per_s), " were measured");
}

// Returns the nodes to which slow links point: their ends, without those that also have a good link, if any are left.
IndexSet suspects(const std::vector<LinkRate>& slow, const std::vector<LinkRate>& good) {
  IndexSet ends;
  for (const LinkRate& each : slow) ends.insert(IndexSet{each.from, each.to});
  IndexSet well;
  for (const LinkRate& each : good) well.insert(IndexSet{each.from, each.to});
  IndexSet left;
  for (const int node : ends.members()) {
    if (!well.contains(node)) left.insert(node);
  }
  return left.empty() ? ends : left;
}

void judge_speed(const JobView& view, const SubnetMap& map, const SubnetEntry& common, CheckOutcome& outcome) {
  const auto is_slow = [&](const LinkRate& link) { return is_slow_link(link.mbit_per_s, common.second.mbit_per_s); };
  std::vector<LinkRate> slow = link_rates(view, map);
  const auto first_good = std::stable_partition(slow.begin(), slow.end(), is_slow);
  const std::vector<LinkRate> good(first_good, slow.end());
  slow.erase(first_good, slow.end());
  if (slow.empty()) return;
  const LinkRate& worst = *std::ranges::min_element(slow, {}, &LinkRate::mbit_per_s);
  const auto host = [&](int node) { return printable(view.topology.node(node).host); };
  const std::string interface = *common.second.interfaces.begin();
  outcome.add({Grade::slow, ranks_of(view, suspects(slow, good)),
               text("from ", host(worst.from), " to ", host(worst.to), ": ", std::llround(worst.mbit_per_s),
                    " Mbit/s measured; ", interface_names(common.second), " claims ", common.second.mbit_per_s,
                    slow.size() > 1 ? text(", and ", counted(slow.size() - 1, "more link"),
                                           slow.size() == 2 ? " is" : " are", " slow")
                                    : ""),
               "data between nodes moves at the rate of the slowest link, and algorithms are chosen by measured rates",
               text("on that node see ethtool ", interface, " (negotiated rate), tc qdisc show dev ", interface,
                    " (shaping) and ip -s link show ", interface,
                    " (lost packets); `lockstep links` measures every pair; no action if this is intended")});
}

}  // namespace

CheckOutcome network(const JobView& view) {
  const SubnetMap map = map_of(view);
  if (map.nodes.size() < 2) return {"one machine: not used", {}};
  const SubnetEntry* common = common_subnet(map);
  CheckOutcome outcome;
  for (const auto& [subnet, side] : map.subnets) {
    if (!side.twins) continue;
    outcome.add({common == nullptr ? Grade::broken : Grade::slow, ranks_of(view, side.nodes),
                 text("several nodes have the same address in ", subnet.to_string(), " (", interface_names(side), ")"),
                 "the address is local to each node; MPI tries it for connections between nodes, and hangs",
                 fix(view, map, common)});
  }
  if (common != nullptr) {
    judge_partial(view, map, *common, outcome);
    judge_speed(view, map, *common, outcome);
    outcome.summary =
        text(map.nodes.size(), " nodes share ", common->first.to_string(), " (", interface_names(common->second),
             speed(common->second.mbit_per_s, link_rates(view, map)), ")");
  } else if (outcome.findings.empty()) {
    outcome.add({Grade::note, view.everybody(),
                 "there is no subnet that all nodes share: their messages go through a router",
                 "routers add latency, and firewalls between them may let only some ports pass",
                 "no action if this is intended; `ip route` on each node shows the routes"});
  }
  return outcome;
}

}  // namespace lockstep::command::check

namespace lockstep::command {

bool is_slow_link(double measured_mbit_per_s, std::int64_t claimed_mbit_per_s) {
  constexpr double least_part = 0.5;
  constexpr double enough = 2000;
  return measured_mbit_per_s < std::min(enough, least_part * static_cast<double>(claimed_mbit_per_s));
}

std::optional<CommonSubnet> common_subnet_of(const JobView& view) {
  const check::SubnetMap map = check::map_of(view);
  const check::SubnetEntry* const common = map.nodes.size() < 2 ? nullptr : check::common_subnet(map);
  if (common == nullptr) return std::nullopt;
  CommonSubnet found{{}, {}, common->second.mbit_per_s};
  for (const int node : map.nodes.members()) {
    for (const NicAddress& each : view.topology.node(node).addresses) {
      if (check::subnet_of(each.address) != common->first) continue;
      found.nodes.push_back(node);
      found.addresses.push_back(each.address.substr(0, each.address.find('/')));
      break;
    }
  }
  return found;
}

}  // namespace lockstep::command
