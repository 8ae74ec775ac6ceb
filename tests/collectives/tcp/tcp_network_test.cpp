// SPDX-License-Identifier: Apache-2.0
// Which network members of several nodes reach each other by.
#include <gtest/gtest.h>

#include "collectives/tcp/tcp_transport.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using Addresses = std::vector<std::string>;

// Nodes of one kind, with these interfaces and their rates; each node with these addresses, by interface.
Topology nodes_with(const std::vector<Nic>& nics, const std::vector<std::vector<NicAddress>>& nodes) {
  TopologyParts parts;
  MachineShape machine;
  machine.pus = {{.os_index = 0, .core = 0, .numa = 0, .package = 0}};
  machine.nics = nics;
  parts.machines = {machine};
  parts.places = {{0, IndexSet{0}, 0, {}}};
  for (const auto& addresses : nodes) {
    const int number = static_cast<int>(parts.nodes.size());
    parts.nodes.push_back({text("host", number), 0, {}, addresses});
    parts.members.push_back({number, 0, 1});
  }
  return Topology(std::move(parts));
}

const std::vector<Nic> slow_and_fast = {{"eth0", 1000}, {"eth1", 25000}};

TEST(CommonNetwork, IsTheFastestThatAllAreIn) {
  EXPECT_EQ(common_network(nodes_with(
                slow_and_fast, {{{0, "10.0.0.1/24"}, {1, "10.1.0.1/16"}}, {{0, "10.0.0.2/24"}, {1, "10.1.9.2/16"}}})),
            (Addresses{"10.1.0.1", "10.1.9.2"}));
  EXPECT_EQ(common_network(nodes_with(
                slow_and_fast, {{{0, "10.0.0.1/24"}, {1, "10.1.0.1/24"}}, {{0, "10.0.0.2/24"}, {1, "10.2.0.2/24"}}})),
            (Addresses{"10.0.0.1", "10.0.0.2"}));
}

TEST(CommonNetwork, IsNoneWhereNoTwoHaveOne) {
  EXPECT_EQ(common_network(nodes_with({{"eth0", 1000}}, {{{0, "10.0.0.1/24"}}, {{0, "10.0.1.2/24"}}})), std::nullopt);
  EXPECT_EQ(common_network(nodes_with({{"eth0", 1000}}, {{{0, "10.0.0.1/24"}}, {}})), std::nullopt);
  EXPECT_EQ(common_network(nodes_with({{"eth0", 1000}}, {{{0, "10.0.0.1"}}, {{0, "10.0.0.2"}}})), std::nullopt);
  EXPECT_EQ(common_network(nodes_with({{"eth0", 1000}}, {{{0, "10.0.0.1/99"}}, {{0, "10.0.0.2/99"}}})), std::nullopt);
}

// As each host's bridge to its containers is.
TEST(CommonNetwork, IsNoneThatEachHasToItself) {
  const std::vector<Nic> nics = {{"docker0", 10000}, {"eth0", 1000}};
  EXPECT_EQ(common_network(nodes_with(
                nics, {{{0, "172.17.0.1/16"}, {1, "10.0.0.1/24"}}, {{0, "172.17.0.1/16"}, {1, "10.0.0.2/24"}}})),
            (Addresses{"10.0.0.1", "10.0.0.2"}));
  EXPECT_EQ(common_network(nodes_with(nics, {{{0, "172.17.0.1/16"}}, {{0, "172.17.0.1/16"}}})), std::nullopt);
}

TEST(CommonNetwork, MayBeNamedByItsInterfaceOrItsAddresses) {
  const Topology both =
      nodes_with(slow_and_fast, {{{0, "10.0.0.1/24"}, {1, "10.1.0.1/16"}}, {{0, "10.0.0.2/24"}, {1, "10.1.9.2/16"}}});
  EXPECT_EQ(common_network(both, "eth0"), (Addresses{"10.0.0.1", "10.0.0.2"}));
  EXPECT_EQ(common_network(both, "10.0."), (Addresses{"10.0.0.1", "10.0.0.2"}));
  EXPECT_EQ(common_network(both, "eth"), std::nullopt);  // the beginning of a name is no name
  EXPECT_EQ(common_network(both, "eth7"), std::nullopt);
}

// As in clouds where every host's address is a network.
TEST(CommonNetwork, IsNotNeededWhereTheInterfaceIsNamed) {
  const Topology routed = nodes_with({{"ens4", 10000}}, {{{0, "10.0.0.7/32"}}, {{0, "10.3.1.9/32"}}});
  EXPECT_EQ(common_network(routed), std::nullopt);
  EXPECT_EQ(common_network(routed, "ens4"), (Addresses{"10.0.0.7", "10.3.1.9"}));
}

TEST(CommonNetwork, MayBeOfIPv6) {
  EXPECT_EQ(common_network(nodes_with({{"eth0", 1000}}, {{{0, "fd00:7::1/64"}}, {{0, "fd00:7::2/64"}}})),
            (Addresses{"fd00:7::1", "fd00:7::2"}));
  EXPECT_EQ(common_network(nodes_with({{"eth0", 1000}}, {{{0, "fd00:7::1/64"}}, {{0, "fd00:8::2/64"}}})), std::nullopt);
  EXPECT_EQ(common_network(nodes_with({{"eth0", 1000}}, {{{0, "fd00:7::1/64"}, {0, "10.0.0.1/24"}},
                                                         {{0, "fd00:7::2/64"}, {0, "10.0.0.2/24"}}})),
            (Addresses{"10.0.0.1", "10.0.0.2"}));
}

}  // namespace
}  // namespace lockstep
