// SPDX-License-Identifier: Apache-2.0
// Topology values: what the description language makes, links, groups, crowding, cost, bytes.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <set>

#include "tests/topology/shapes.hpp"
#include "tests/topology/two_hosts.hpp"
#include "topology/base/error.hpp"
#include "topology/description.hpp"
#include "topology/group.hpp"
#include "topology/members.hpp"

namespace lockstep {
namespace {

using test::made_of;
using test::shape;
using test::two_hosts;

Topology four_nodes(int ranks) {
  return describe({{shape({.packages = 2, .numas = 2, .cores = 4, .threads = 2}), 4, ranks}});
}

TEST(Description, IsReadAsWritten) {
  const auto groups = parse_description("4 x node(package:2 numa:2 core:8 pu:2 gpu:4 nic:25G)");
  ASSERT_EQ(groups.size(), 1U);
  EXPECT_EQ(groups[0].count, 4);
  EXPECT_EQ(groups[0].hwloc, "package:2 numa:2 core:8 pu:2");
  EXPECT_EQ(groups[0].gpus, 4);
  EXPECT_EQ(groups[0].nic_mbit_per_s, (std::vector<std::int64_t>{25000}));
}

TEST(Description, GroupsCountsLinksAndRates) {
  const auto groups = parse_description(
      "2x node(core:8 pu:1 ranks:3 nic:2x100G nic:1.5T gpu:8@nvlink) + node( core:4(x=1 y) pu:1 ) + pack:1 pu:2");
  ASSERT_EQ(groups.size(), 3U);
  EXPECT_EQ(groups[0].count, 2);
  EXPECT_EQ(groups[0].ranks, 3);
  EXPECT_EQ(groups[0].nic_mbit_per_s, (std::vector<std::int64_t>{100000, 100000, 1500000}));
  EXPECT_EQ(groups[0].gpu_link, GpuLink::nvlink);
  EXPECT_EQ(groups[1].count, 1);
  EXPECT_EQ(groups[1].hwloc, "core:4(x=1 y) pu:1");
  EXPECT_EQ(groups[2].hwloc, "pack:1 pu:2");
}

TEST(Description, RefusesNonsenseWithAnExample) {
  for (const char* junk : {"",
                           "+",
                           "node()",
                           "node(gpu:4)",
                           "0 x node(pu:1)",
                           "-1 x node(pu:1)",
                           "99999999 x node(pu:1)",
                           "node(pu:1",
                           "pu:1)",
                           "node(pu:1))",
                           "4 x node(pu:1) +",
                           "node(pu:1 gpu:0)",
                           "node(pu:1 gpu:x)",
                           "node(pu:1 gpu:2@magic)",
                           "node(pu:1 nic:25)",
                           "node(pu:1 nic:G)",
                           "node(pu:1 nic:0x25G)",
                           "node(pu:1 nic:99999x25G)",
                           "node(pu:1 nic:-5G)",
                           "node(core:100000 pu:100000)",
                           "40000 x node(pu:1) + 40000 x node(pu:1)",
                           "node(pu:1 ranks:0)",
                           "4 x node(pu:1) trailing"}) {
    try {
      parse_description(junk);
      ADD_FAILURE() << "accepted: " << junk;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::bad_description);
      EXPECT_NE(std::string(error.what()).find(" -> "), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(parse_description(std::string(5000, 'x')), Error);
}

TEST(Description, SpreadsDevicesAndMembersEvenly) {
  const auto group = parse_description("node(x gpu:4 nic:2x100G)").front();
  const MachineShape machine = with_devices(shape({.packages = 2, .numas = 2, .cores = 4, .threads = 1}), group);
  ASSERT_EQ(machine.gpus.size(), 4U);
  EXPECT_EQ(machine.gpus[0].numa, 0);
  EXPECT_EQ(machine.gpus[3].numa, 3);
  EXPECT_EQ(machine.gpu_link(0, 1), GpuLink::pcie);
  EXPECT_EQ(machine.gpu_link(0, 2), GpuLink::via_host);
  EXPECT_EQ(machine.nics[1].package, 1);
  const auto places = even_places(machine, 0, 4);
  EXPECT_EQ(places[1].pus.to_string(), "4-7");
  EXPECT_EQ(places[1].gpus, (std::vector<int>{1}));
  const auto crowded = even_places(machine, 0, 32);
  EXPECT_EQ(crowded[0].pus, crowded[1].pus);
  EXPECT_EQ(default_ranks(machine), 4);
  EXPECT_EQ(default_ranks(shape({.packages = 1, .numas = 1, .cores = 4, .threads = 2})), 4);
}

TEST(Description, TooManyMembersAreRefused) {
  EXPECT_THROW(describe({{shape({.packages = 1, .numas = 1, .cores = 2, .threads = 1}), 65536, 65536}}), Error);
}

TEST(Links, FromNearToFar) {
  const MachineShape machine = shape({.packages = 2, .numas = 2, .cores = 4, .threads = 2, .l3_cores = 2});
  // rank i on hardware threads: two on one core, then same L3, same NUMA, same package, same node, other node
  const Topology topology =
      made_of({machine}, {{0, {{0, 0}, {1, 1}, {2, 2}, {4, 4}, {8, 8}, {16, 16}}}, {0, {{0, 0}}}});
  EXPECT_EQ(topology.link(0, 0), Link::self);
  EXPECT_EQ(topology.link(0, 1), Link::same_core);
  EXPECT_EQ(topology.link(0, 2), Link::shared_cache);
  EXPECT_EQ(topology.link(0, 3), Link::same_numa);
  EXPECT_EQ(topology.link(0, 4), Link::same_package);
  EXPECT_EQ(topology.link(0, 5), Link::same_node);
  EXPECT_EQ(topology.link(0, 6), Link::network);
  for (int a = 0; a < topology.size(); ++a) {
    for (int b = 0; b < topology.size(); ++b) EXPECT_EQ(topology.link(a, b), topology.link(b, a));
  }
}

TEST(Links, AMemberThatMayRunAnywhereIsAsFarAsItsFarthestCore) {
  const MachineShape machine = shape({.packages = 2, .numas = 1, .cores = 4, .threads = 1});
  const Topology topology = made_of({machine}, {{0, {{0, 7}, {0, 0}, {0, 3}}}});
  EXPECT_EQ(topology.link(0, 1), Link::same_node);
  EXPECT_EQ(topology.link(1, 2), Link::same_numa);
}

TEST(Links, BetweenGpus) {
  const auto group = parse_description("node(x gpu:4@nvlink)").front();
  const MachineShape machine = with_devices(shape({.packages = 2, .numas = 1, .cores = 2, .threads = 1}), group);
  const Topology topology = describe({{machine, 2, 0}});
  EXPECT_EQ(topology.size(), 8);
  EXPECT_EQ(topology.gpu_link(0, 0, 1, 1), GpuLink::nvlink);
  EXPECT_EQ(topology.gpu_link(0, 0, 0, 0), GpuLink::same);
  EXPECT_EQ(topology.gpu_link(0, 0, 4, 0), GpuLink::network);
  EXPECT_EQ(topology.closest_gpus(2), (std::vector<int>{2}));
}

// As `lockstep topo --synthetic "package:2 core:2 nic:4x100G"` has it, whose picture shows interfaces by package.
TEST(Links, InterfacesOfAnotherPackageAreNotNearInOneNumaNode) {
  MachineShape machine = shape({.packages = 2, .numas = 1, .cores = 2, .threads = 1});
  for (Pu& pu : machine.pus) pu.numa = 0;
  const auto group = parse_description("node(x nic:4x100G ranks:2)").front();
  const Topology topology = describe({{with_devices(machine, group), 1, 2}});
  EXPECT_EQ(topology.closest_nics(0), (std::vector<int>{0, 1}));
  EXPECT_EQ(topology.closest_nics(1), (std::vector<int>{2, 3}));
}

TEST(Members, AreNamedByHostAndProcess) {
  const auto topology = two_hosts();
  const Members all(topology, {0, 1, 2});
  EXPECT_EQ(all.name_of(2), "rank 2 (process 88 on node04)");
  EXPECT_EQ(all.name_of(IndexSet{0, 1, 2}), "ranks 0-2 (processes 4711,4712 on node03 and 88 on node04)");
  EXPECT_EQ(Members(topology, {2, 0}).name_of(0), "rank 0 (process 88 on node04)") << "of a part of them";
  EXPECT_EQ(Members().name_of(IndexSet{1, 2}), "ranks 1-2");
  EXPECT_EQ(member_names({0, 1}, {{"node03", 4711}, {"node04", 88}}, 1), "ranks 0-1 (on node03,node04)");
}

TEST(Crowding, CountsMembersForEachCore) {
  const MachineShape machine = shape({.packages = 1, .numas = 1, .cores = 4, .threads = 2});
  EXPECT_DOUBLE_EQ(made_of({machine}, {{0, {{0, 1}, {2, 3}, {4, 5}, {6, 7}}}}).members_per_core(0), 1);
  EXPECT_DOUBLE_EQ(made_of({machine}, {{0, {{0, 7}, {0, 7}}}}).members_per_core(0), 0.5);
  EXPECT_DOUBLE_EQ(made_of({machine}, {{0, {{0, 0}, {0, 0}, {0, 0}}}}).members_per_core(0), 3);
  EXPECT_DOUBLE_EQ(made_of({machine}, {{0, {{0, 7}, {0, 7}, {0, 0}, {2, 2}}}}).members_per_core(0), 1);
}

TEST(Crowding, TwoThreadsOfOneCoreAreOneCore) {
  const MachineShape machine = shape({.packages = 1, .numas = 1, .cores = 2, .threads = 2});
  EXPECT_DOUBLE_EQ(made_of({machine}, {{0, {{0, 0}, {1, 1}}}}).members_per_core(0), 2);
}

TEST(Crowding, AQuotaIsSharedByMembersThatAreBoundToCoresOfTheirOwn) {
  TopologyParts parts;
  parts.machines = {shape({.packages = 1, .numas = 1, .cores = 8, .threads = 1})};
  parts.nodes = {{"a", 0, {}, {}}};
  for (int i = 0; i < 8; ++i) {
    parts.places.push_back({0, IndexSet{i}, 4, {}});
    parts.members.push_back({0, i, 0});
  }
  EXPECT_DOUBLE_EQ(Topology(parts).members_per_core(0), 2);
}

TEST(Crowding, AQuotaCountsLikeMissingCores) {
  TopologyParts parts;
  parts.machines = {shape({.packages = 1, .numas = 1, .cores = 4, .threads = 1})};
  parts.nodes = {{"a", 0, {}, {}}};
  parts.places = {{0, IndexSet::range(0, 3), 0.5, {}}};
  parts.members = {{0, 0, 1}, {0, 0, 2}};
  EXPECT_DOUBLE_EQ(Topology(parts).members_per_core(0), 4);
}

TEST(Parts, ThatContradictThemselvesAreRefused) {
  TopologyParts good;
  good.machines = {shape({.packages = 1, .numas = 1, .cores = 2, .threads = 1})};
  good.nodes = {{"a", 0, {}, {}}};
  good.places = {{0, IndexSet{0}, 0, {}}};
  good.members = {{0, 0, 1}};
  ASSERT_NO_THROW(Topology{good});
  const auto refused = [&](const std::function<void(TopologyParts&)>& damage) {
    TopologyParts bad = good;
    damage(bad);
    EXPECT_THROW(Topology{bad}, Error);
  };
  refused([](TopologyParts& parts) { parts.members.clear(); });
  refused([](TopologyParts& parts) { parts.members[0].node = 1; });
  refused([](TopologyParts& parts) { parts.members[0].place = -1; });
  refused([](TopologyParts& parts) { parts.nodes[0].machine = 7; });
  refused([](TopologyParts& parts) { parts.nodes.push_back({"empty", 0, {}, {}}); });
  refused([](TopologyParts& parts) { parts.places[0].pus = IndexSet{2}; });
  refused([](TopologyParts& parts) { parts.places[0].pus = {}; });
  refused([](TopologyParts& parts) { parts.places[0].gpus = {0}; });
  refused([](TopologyParts& parts) { parts.machines[0].pus.clear(); });
  refused([](TopologyParts& parts) { parts.machines[0].pus[1].os_index = 0; });
  refused([](TopologyParts& parts) { parts.machines[0].gpu_links.push_back(GpuLink::same); });
}

TEST(TopologyBytes, ComeBackEqualAndTruncatedOnesAreRefused) {
  const Topology topology = four_nodes(3);
  const Bytes bytes = topology.to_bytes();
  EXPECT_EQ(Topology::from_bytes(bytes), topology);
  EXPECT_EQ(Topology::from_bytes(bytes).fingerprint(), topology.fingerprint());
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_THROW(Topology::from_bytes(std::span<const std::byte>(bytes).first(size)), Error) << size;
  }
}

TEST(Cost, ThousandsOfMembersTakeLessThanAKilobyteEach) {
  const Topology topology = describe({{shape({.packages = 2, .numas = 2, .cores = 16, .threads = 2}), 512, 8}});
  ASSERT_EQ(topology.size(), 4096);
  EXPECT_EQ(topology.machines().size(), 1U);
  EXPECT_EQ(topology.places().size(), 8U);
  EXPECT_LT(topology.size_bytes() / 4096, 1024U);
}

// Random machines, members in random order on random nodes: what must hold for every one of them.
class RandomTopology : public testing::TestWithParam<unsigned> {
 protected:
  static Topology make(unsigned seed) {
    std::mt19937 random(seed);
    const auto up_to = [&](int most) { return static_cast<int>(random() % static_cast<unsigned>(most)) + 1; };
    TopologyParts parts;
    const int kinds = up_to(3);
    for (int kind = 0; kind < kinds; ++kind) {
      parts.intern(shape({.packages = up_to(2), .numas = up_to(2), .cores = up_to(4), .threads = up_to(2)}));
    }
    const int nodes = up_to(6);
    for (int node = 0; node < nodes; ++node) {
      parts.nodes.push_back({text("host", node), static_cast<int>(random() % parts.machines.size()), {}, {}});
      for (int member = up_to(5); member > 0; --member) {
        const int machine = parts.nodes.back().machine;
        const int pus = static_cast<int>(parts.machines[static_cast<std::size_t>(machine)].pus.size());
        const int first = up_to(pus) - 1;
        const Place place{machine, IndexSet::range(first, first + up_to(pus - first) - 1), 0, {}};
        parts.members.push_back({node, parts.intern(place), 0});
      }
    }
    std::shuffle(parts.members.begin(), parts.members.end(), random);
    return Topology(std::move(parts));
  }
};

TEST_P(RandomTopology, SomeOfItsMembersAreAsNearToEachOtherAsBefore) {
  const Topology topology = make(GetParam());
  std::mt19937 random(GetParam());
  std::vector<int> some(static_cast<std::size_t>(topology.size()));
  std::iota(some.begin(), some.end(), 0);
  std::shuffle(some.begin(), some.end(), random);
  some.resize(1 + random() % some.size());
  const Topology less = topology.among(some);
  ASSERT_EQ(less.size(), static_cast<int>(some.size()));
  std::set<std::string> hosts;
  for (int a = 0; a < less.size(); ++a) {
    const int rank = some[static_cast<std::size_t>(a)];
    const std::string& host = topology.node(topology.member(rank).node).host;
    EXPECT_EQ(less.node(less.member(a).node).host, host);
    EXPECT_EQ(less.place_of(a), topology.place_of(rank));
    hosts.insert(host);
    for (int b = 0; b < less.size(); ++b)
      EXPECT_EQ(less.link(a, b), topology.link(rank, some[static_cast<std::size_t>(b)]));
  }
  EXPECT_EQ(less.node_count(), static_cast<int>(hosts.size()));
}

TEST_P(RandomTopology, NodesAndRailsPartitionTheMembers) {
  const Topology topology = make(GetParam());
  std::vector<int> by_node;
  for (int node = 0; node < topology.node_count(); ++node) {
    const Group group = node_group(topology, node, 0);
    for (const int rank : group.ranks()) EXPECT_EQ(topology.member(rank).node, node);
    by_node.insert(by_node.end(), group.ranks().begin(), group.ranks().end());
  }
  std::vector<int> by_rail;
  for (int i = 0; i < rail_count(topology); ++i) {
    const Group rail = rail_group(topology, i, 0);
    by_rail.insert(by_rail.end(), rail.ranks().begin(), rail.ranks().end());
  }
  std::vector<int> everybody(static_cast<std::size_t>(topology.size()));
  std::iota(everybody.begin(), everybody.end(), 0);
  std::ranges::sort(by_node);
  std::ranges::sort(by_rail);
  EXPECT_EQ(by_node, everybody);
  EXPECT_EQ(by_rail, everybody);
}

TEST_P(RandomTopology, RailsCrossNodesAndLeadersAreOneForEach) {
  const Topology topology = make(GetParam());
  for (int i = 0; i < rail_count(topology); ++i) {
    std::set<int> nodes;
    const Group rail = rail_group(topology, i, 0);
    for (const int rank : rail.ranks()) {
      EXPECT_TRUE(nodes.insert(topology.member(rank).node).second) << "two members of a rail on one node";
      EXPECT_EQ(topology.index_in_node(rank), i);
    }
  }
  EXPECT_EQ(leader_group(topology, 0).size(), topology.node_count());
}

TEST_P(RandomTopology, TheRingVisitsEveryNodeOnceAndGoesThroughItInOrder) {
  const Topology topology = make(GetParam());
  const Group ring = world_group(topology, 0);
  int changes = 0;
  for (int i = 0; i < ring.size(); ++i) {
    const int here = ring.rank(i);
    const int next = ring.rank((i + 1) % ring.size());
    if (topology.member(here).node != topology.member(next).node) {
      ++changes;
    } else if (i + 1 < ring.size()) {
      EXPECT_LE(topology.place_of(here).pus.first(), topology.place_of(next).pus.first());
    }
  }
  EXPECT_EQ(changes, topology.node_count() == 1 ? 0 : topology.node_count());
}

TEST_P(RandomTopology, EverybodyFindsItselfInItsGroups) {
  const Topology topology = make(GetParam());
  for (int me = 0; me < topology.size(); ++me) {
    const Group world = world_group(topology, me);
    ASSERT_TRUE(world.contains_me());
    EXPECT_EQ(world.rank(world.index()), me);
    EXPECT_EQ(node_group(topology, topology.member(me).node, me).index(), topology.index_in_node(me));
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomTopology, testing::Range(0U, 60U));

}  // namespace
}  // namespace lockstep
