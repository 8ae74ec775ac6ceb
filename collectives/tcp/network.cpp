// SPDX-License-Identifier: Apache-2.0
// Finds the network that joins all nodes.
#include <arpa/inet.h>

#include <algorithm>
#include <array>
#include <map>

#include "collectives/tcp/tcp_transport.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Holds a network such as 10.0.0.1/24, without the bits of the host.
struct IpNetwork {
  bool is_v6 = false;
  std::array<std::uint8_t, 16> prefix{};
  int bits = 0;
  auto operator<=>(const IpNetwork&) const = default;  // NOLINT(modernize-use-nullptr): of the comparison itself
};

std::optional<IpNetwork> network_of(const std::string& address) {
  const std::size_t slash = address.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const auto bits = parse_integer(address.substr(slash + 1));
  IpNetwork network;
  network.is_v6 = address.find(':') != std::string::npos;
  const int all = network.is_v6 ? 128 : 32;
  if (!bits || *bits < 0 || *bits > all) return std::nullopt;
  if (::inet_pton(network.is_v6 ? AF_INET6 : AF_INET, address.substr(0, slash).c_str(), network.prefix.data()) != 1)
    return std::nullopt;
  network.bits = static_cast<int>(*bits);
  for (int bit = network.bits; bit < 128; ++bit)
    network.prefix[static_cast<std::size_t>(bit / 8)] &= static_cast<std::uint8_t>(~(0x80U >> (bit % 8)));
  return network;
}

struct InterfaceAddress {
  std::int64_t rate = 0;
  std::string address;
};

// Returns the networks of one node, restricted to the wanted interface.
std::map<IpNetwork, InterfaceAddress> networks_of(const Topology& topology, int node, const std::string& interface) {
  std::map<IpNetwork, InterfaceAddress> all;
  for (const NicAddress& each : topology.node(node).addresses) {
    const Nic& nic = topology.machine_of_node(node).nics.at(static_cast<std::size_t>(each.nic));
    const bool is_wanted = interface.empty() || nic.name == interface || each.address.starts_with(interface);
    const auto network = network_of(each.address);
    if (!is_wanted || !network) continue;
    InterfaceAddress& found = all[*network];
    if (found.address.empty()) found = {nic.mbit_per_s, each.address.substr(0, each.address.find('/'))};
  }
  return all;
}

struct CommonNetwork {
  std::int64_t rate = 0;  // of the slowest node
  std::vector<std::string> addresses;
};

// Joins all nodes by one address of each. Returns nothing if a node has none, or if two nodes have the same address.
// Private networks of the same name on each host cause the latter.
template <class Pick>
std::optional<CommonNetwork> joined_by(const std::vector<std::map<IpNetwork, InterfaceAddress>>& nodes,
                                       const Pick& pick) {
  CommonNetwork all;
  for (const auto& node : nodes) {
    const auto here = pick(node);
    if (here == node.end()) return std::nullopt;
    const InterfaceAddress& found = here->second;
    all.rate = all.addresses.empty() ? found.rate : std::min(all.rate, found.rate);
    all.addresses.push_back(found.address);
  }
  auto sorted = all.addresses;
  std::ranges::sort(sorted);
  if (std::ranges::adjacent_find(sorted) != sorted.end()) return std::nullopt;
  return all;
}

}  // namespace

std::optional<std::vector<std::string>> common_network(const Topology& topology, const std::string& interface) {
  std::vector<std::map<IpNetwork, InterfaceAddress>> nodes;
  nodes.reserve(static_cast<std::size_t>(topology.node_count()));
  for (int node = 0; node < topology.node_count(); ++node) nodes.push_back(networks_of(topology, node, interface));
  std::optional<CommonNetwork> best;
  for (const auto& [network, found] : nodes.front()) {
    auto joined = joined_by(nodes, [&network = network](const auto& node) { return node.find(network); });
    if (joined && (!best || joined->rate > best->rate)) best = std::move(joined);
  }
  // A user who names the interface knows that its networks are connected.
  if (!best && !interface.empty()) best = joined_by(nodes, [](const auto& node) { return node.begin(); });
  if (!best) return std::nullopt;
  return std::move(best->addresses);
}

}  // namespace lockstep
