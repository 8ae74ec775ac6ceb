// SPDX-License-Identifier: Apache-2.0
// The cost model: what a group is like, and that prices move the way that machines do.
#include "collectives/cost_model.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

#include "collectives/planner.hpp"
#include "tests/topology/shapes.hpp"

namespace lockstep::test {
namespace {

Topology nodes_of(int nodes, int members, const MachineShape& machine, int cores_each = 1) {
  std::vector<MadeNode> all;
  for (int node = 0; node < nodes; ++node) {
    MadeNode made;
    for (int i = 0; i < members; ++i) made.members.emplace_back(i * cores_each, (i + 1) * cores_each - 1);
    all.push_back(made);
  }
  return made_of({machine}, all);
}

GroupFacts facts(const Topology& topology, std::vector<int> ranks = {}) {
  if (ranks.empty()) {
    ranks.resize(static_cast<std::size_t>(topology.size()));
    std::iota(ranks.begin(), ranks.end(), 0);
  }
  return facts_of(topology, Group(ranks, ranks.front()));
}

double price_us(const Algorithm& algorithm, const Shape& problem, const GroupFacts& facts, int segments = 1) {
  return lockstep::price(algorithm, problem, facts, segments).total_us;
}

double price(std::string_view name, const GroupFacts& facts, std::size_t bytes,
             Collective collective = Collective::all_reduce) {
  Shape shape{.size = facts.size, .count = bytes};
  if (collective == Collective::all_gather || collective == Collective::gather)
    shape.output_blocks = Blocks::even(bytes, facts.size);
  return price_us(*find_algorithm(collective, name), shape, facts);
}

TEST(Facts, AreThoseOfTheGroupAndNotOfTheWorld) {
  const MachineShape machine = shape({.packages = 2, .cores = 4, .l3_cores = 4});
  const Topology topology = nodes_of(3, 8, machine);
  const GroupFacts world = facts(topology);
  EXPECT_EQ(world.nodes(), 3);
  EXPECT_EQ(world.most_on_a_node, 8);
  EXPECT_EQ(world.node_link, Link::same_node);
  EXPECT_TRUE(world.has_levels());
  const GroupFacts cache = facts(topology, {0, 1, 2, 3});
  EXPECT_EQ(cache.node_link, Link::shared_cache);
  EXPECT_FALSE(cache.has_levels());
  const GroupFacts leaders = facts(topology, {0, 8, 16});
  EXPECT_EQ(leaders.node_link, Link::self);
  EXPECT_FALSE(leaders.has_levels());
  const GroupFacts mixed = facts(topology, {16, 1, 17, 0});
  EXPECT_EQ(mixed.levels.nodes, (std::vector<std::vector<int>>{{0, 2}, {1, 3}}));
  EXPECT_EQ(mixed.node_of, (std::vector{0, 1, 0, 1}));
}

TEST(Facts, HaveTheRacksAndTheLevelsAboveThem) {
  const MachineShape machine = shape({.packages = 1, .cores = 2, .l3_cores = 2});
  const Topology plain = nodes_of(8, 2, machine);
  EXPECT_EQ(facts(plain).levels.above, nullptr);
  const auto named = [&](std::vector<std::string> names) { return plain.with_racks(std::move(names), 8000); };
  const Topology two = named({"a", "b", "a", "b", "a", "b", "a", "b"});
  const GroupFacts racks = facts(two);
  ASSERT_NE(racks.levels.above, nullptr);
  EXPECT_EQ(*racks.levels.above, (Levels{{{0, 2, 4, 6}, {1, 3, 5, 7}}}));
  EXPECT_EQ(racks.rack_of, (std::vector{0, 1, 0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(racks.rack_bytes_per_us, 1000);
  EXPECT_EQ(racks.seen_levels(true), &racks.levels);
  // One member of each node: they are in racks at once.
  const GroupFacts leaders = facts(two, {0, 2, 4, 6});
  EXPECT_EQ(*leaders.seen_levels(false), (Levels{{{0, 2}, {1, 3}}}));
  EXPECT_EQ(facts(two, {0, 4, 8}).levels.above, nullptr);  // all in one
  const GroupFacts rows = facts(named({"x/a", "x/a", "x/b", "x/b", "y/a", "y/a", "y/b", "y/b"}));
  ASSERT_NE(rows.levels.above, nullptr);
  EXPECT_EQ(rows.levels.above->nodes, (std::vector<std::vector<int>>{{0, 1}, {2, 3}, {4, 5}, {6, 7}}));
  ASSERT_NE(rows.levels.above->above, nullptr);
  EXPECT_EQ(rows.levels.above->above->nodes, (std::vector<std::vector<int>>{{0, 1}, {2, 3}}));
  // Racks of one node each are none, but what they are in is.
  const GroupFacts single = facts(named({"x/a", "x/b", "x/c", "x/d", "y/a", "y/b", "y/c", "y/d"}));
  EXPECT_EQ(*single.levels.above, (Levels{{{0, 1, 2, 3}, {4, 5, 6, 7}}}));
}

TEST(Facts, HaveThePackagesOfNodesWhereTheseHaveEqualOnes) {
  const MachineShape machine = shape({.packages = 2, .cores = 4, .l3_cores = 4});
  const Topology topology = nodes_of(3, 8, machine);
  const GroupFacts world = facts(topology);
  ASSERT_NE(world.packages, nullptr);
  EXPECT_EQ(world.packages->nodes,
            (std::vector<std::vector<int>>{
                {0, 1, 2, 3}, {4, 5, 6, 7}, {8, 9, 10, 11}, {12, 13, 14, 15}, {16, 17, 18, 19}, {20, 21, 22, 23}}));
  ASSERT_NE(world.packages->above, nullptr);
  EXPECT_EQ(*world.packages->above, (Levels{{{0, 1}, {2, 3}, {4, 5}}}));
  EXPECT_EQ(world.seen_levels(false), world.packages.get());
  EXPECT_EQ(world.seen_levels(true), &world.levels);
  EXPECT_LT(world.package_latency_us, world.node_latency_us);
  const GroupFacts one = facts(topology, {0, 5, 1, 4});
  ASSERT_NE(one.packages, nullptr);
  EXPECT_EQ(*one.packages, (Levels{{{0, 2}, {1, 3}}}));
  for (const auto& none_there : {std::vector{0, 1, 2, 3}, {0, 4}, {0, 1, 4}, {0, 1, 8, 9}})
    EXPECT_EQ(facts(topology, none_there).packages, nullptr);
  // In racks, too.
  const GroupFacts racks = facts(nodes_of(4, 8, machine).with_racks({"a", "a", "b", "b"}, 0));
  ASSERT_NE(racks.packages, nullptr);
  ASSERT_NE(racks.packages->above, nullptr);
  ASSERT_NE(racks.packages->above->above, nullptr);
  EXPECT_EQ(*racks.packages->above->above, (Levels{{{0, 1}, {2, 3}}}));
}

// Between packages bytes take longer than within one.
TEST(Prices, AreLowerWithinAPackage) {
  const GroupFacts known = facts(nodes_of(1, 8, shape({.packages = 2, .cores = 4, .l3_cores = 4})));
  ASSERT_NE(known.packages, nullptr);
  const auto price_of = [&](std::string_view name, const std::vector<int>& package_of) {
    GroupFacts there = known;
    there.package_of = package_of;
    const Shape shape{.size = there.size, .count = 1U << 20U, .levels = there.seen_levels(false)};
    return price_us(*find_algorithm(Collective::all_reduce, name), shape, there);
  };
  const std::vector<int> as_they_are = known.package_of;
  EXPECT_LT(price_of("hierarchical_ring", as_they_are), price_of("hierarchical_ring", {0, 1, 0, 1, 0, 1, 0, 1}));
}

// Where one connection does not fill the link, what goes by one member of each node takes longer.
TEST(Prices, UseTheRateOfOneConnection) {
  const Topology plain = nodes_of(4, 4, shape({.packages = 1, .cores = 4, .l3_cores = 4}));
  const auto measured = [&](double flow) {
    return facts(plain.with_network({.latency_us = 20,
                                     .node_latency_us = 1,
                                     .bytes_per_us = 4000,
                                     .flow_bytes_per_us = flow,
                                     .short_bytes_per_us = 4000}));
  };
  const auto price_of = [&](std::string_view name, const GroupFacts& known) {
    const Shape shape{.size = known.size, .count = 4U << 20U, .levels = known.seen_levels(true)};
    return price_us(*find_algorithm(Collective::all_reduce, name), shape, known);
  };
  EXPECT_EQ(price_of("node_ring", measured(1000)), price_of("node_ring", measured(4000))) << "four fill it";
  EXPECT_GT(price_of("node_leaders", measured(1000)), 1.5 * price_of("node_leaders", measured(4000)));
}

TEST(Prices, AreHigherBetweenRacks) {
  const MachineShape machine = shape({.packages = 1, .cores = 2, .l3_cores = 2});
  const Topology plain = nodes_of(8, 2, machine);
  const std::vector<std::string> names = {"a", "b", "a", "b", "a", "b", "a", "b"};
  const auto measured = [&](const std::vector<std::string>& racks, std::int64_t uplink) {
    return facts(
        plain.with_racks(racks, uplink)
            .with_network({.latency_us = 20, .node_latency_us = 1, .bytes_per_us = 1000, .short_bytes_per_us = 1000}));
  };
  constexpr std::size_t much = 64U << 20U;
  const auto price_of = [&](std::string_view name, const GroupFacts& known) {
    const Shape shape{.size = known.size, .count = much, .levels = known.seen_levels(true)};
    return price_us(*find_algorithm(Collective::all_reduce, name), shape, known);
  };
  const GroupFacts wide = measured(names, 0);
  const GroupFacts narrow = measured(names, 800);  // a tenth of what one node has
  EXPECT_GT(price_of("node_ring", narrow), 5 * price_of("node_ring", wide));
  EXPECT_LT(price_of("node_hierarchical_ring", narrow), 0.2 * price_of("node_ring", narrow));
}

TEST(Facts, KnowTheNetworkWhereTheInterfacesSayIt) {
  MachineShape machine = shape({.cores = 2});
  EXPECT_FALSE(facts(nodes_of(2, 1, machine)).network_known);
  machine.nics = {{"eth0", 1000, none, none}, {"ib0", 100000, none, none}, {"ib1", 100000, none, none}};
  const GroupFacts fast = facts(nodes_of(2, 1, machine));
  EXPECT_TRUE(fast.network_known);
  EXPECT_EQ(fast.network_bytes_per_us, 25000) << "two of 100 Gbit/s";
}

TEST(Facts, KnowMembersThatShareACore) {
  EXPECT_EQ(facts(nodes_of(1, 2, shape({.cores = 2}))).members_per_core, 1);
  const Topology crowded = made_of({shape({.cores = 2})}, {{0, {{0, 1}, {0, 1}, {0, 1}, {0, 1}}}});
  EXPECT_EQ(facts(crowded).members_per_core, 2);
}

TEST(Facts, PreferMeasuredSpeedsToClaimedOnes) {
  MachineShape machine = shape({.cores = 2});
  machine.nics = {{"eth0", 100000, none, none}};
  const Topology topology = nodes_of(4, 2, machine);
  const GroupFacts said = facts(topology);
  EXPECT_FALSE(said.is_measured);
  EXPECT_EQ(segment_that_suits(said, 4), 0U);
  const GroupFacts measured =
      facts(topology.with_network({.latency_us = 30, .node_latency_us = 7, .bytes_per_us = 117, .crowd = 4}));
  EXPECT_TRUE(measured.is_measured && measured.network_known);
  EXPECT_EQ(measured.network_latency_us, 30);
  EXPECT_EQ(measured.node_latency_us, 7);
  EXPECT_EQ(measured.network_bytes_per_us, 117);
  EXPECT_EQ(measured.members_per_core, 4) << "of all nodes that this machine has";
  const GroupFacts without_neighbours = facts(topology.with_network({.latency_us = 30, .bytes_per_us = 117}));
  EXPECT_EQ(without_neighbours.node_latency_us, said.node_latency_us);
  EXPECT_EQ(without_neighbours.members_per_core, 1);
  const GroupFacts one_node = facts(topology.with_network({.latency_us = 30, .bytes_per_us = 117}), {0, 1});
  EXPECT_EQ(one_node.nodes(), 1);
}

TEST(Segments, AreLongerWhereLinksAreFasterOrCoresAreShared) {
  const Topology topology = nodes_of(4, 2, shape({.cores = 2}));
  const auto segment = [&](double latency_us, double rate, double crowd, int messages = 4) {
    return segment_that_suits(
        facts(topology.with_network({.latency_us = latency_us, .bytes_per_us = rate, .crowd = crowd})), messages);
  };
  EXPECT_LT(segment(30, 117, 1), segment(30, 1170, 1));
  EXPECT_LT(segment(30, 117, 1), segment(30, 117, 16));
  EXPECT_LE(segment(1e9, 1e9, 1), 16U << 20U);
  EXPECT_GE(segment(0.001, 0.001, 1), 32U << 10U);
  EXPECT_LT(segment(30, 117, 1, 1), segment(30, 117, 1)) << "a message that is not divided";
}

// A link carries the sums of a chain once, and those of doubling twice.
TEST(Prices, OfLongScansAreLowestInAChainOfNodes) {
  const auto topology = std::make_shared<const Topology>(
      nodes_of(4, 2, shape({.cores = 2}))
          .with_network({.latency_us = 30, .node_latency_us = 9, .bytes_per_us = 117, .crowd = 4}));
  Planner planner(topology, world_group(*topology, 0), {.split_node_element = 64});
  for (const Collective collective : {Collective::scan, Collective::exscan}) {
    const auto plan = [&](std::size_t count) { return planner.plan({.collective = collective, .count = count}); };
    EXPECT_EQ(plan(64)->algorithm, "node_leaders");
    EXPECT_EQ(plan(1U << 18U)->algorithm, "node_chain");
    EXPECT_GE(plan(1U << 18U)->segments, 16);
    EXPECT_EQ(plan(1U << 14U)->algorithm, "node_chain") << "64 KiB";
    EXPECT_GE(plan(1U << 14U)->segments, 6) << "each link is idle until the first segment comes, so that is short";
    EXPECT_LT(plan(1U << 14U)->segments, plan(1U << 18U)->segments);
  }
}

TEST(Prices, OfSegmentsThatOverlapAreLowerUntilTheyAreTooMany) {
  const GroupFacts nodes =
      facts(nodes_of(4, 2, shape({.cores = 2}))
                .with_network({.latency_us = 30, .node_latency_us = 7, .bytes_per_us = 1000, .crowd = 4}));
  const Algorithm& staged = *find_algorithm(Collective::all_reduce, "hierarchical_ring");
  const Shape large{.size = 8, .count = 16U << 20U, .levels = &nodes.levels};
  EXPECT_LT(price_us(staged, large, nodes, 8), price_us(staged, large, nodes));
  const Shape small{.size = 8, .count = 4096, .levels = &nodes.levels};
  EXPECT_GT(price_us(staged, small, nodes, 8), price_us(staged, small, nodes));
}

TEST(Prices, OfCrowdedCoresCountMessagesRatherThanTheirWay) {
  const Topology topology = nodes_of(4, 2, shape({.cores = 2}));
  const auto of = [&](double latency_us, double crowd) {
    return price("ring",
                 facts(topology.with_network(
                     {.latency_us = latency_us, .node_latency_us = 1, .bytes_per_us = 117, .crowd = crowd})),
                 8);
  };
  EXPECT_GT(of(100, 1), of(10, 1));
  EXPECT_GT(of(10, 8), of(10, 4));
  EXPECT_DOUBLE_EQ(of(10, 64), of(11, 64));
}

// On cores that are shared every round is waited for, and what moves bytes within a node takes from what moves them
// between nodes.
TEST(Prices, OfCrowdedCoresAreLowestForFewRoundsAndFewBytesWithinTheNode) {
  const GroupFacts crowded =
      facts(nodes_of(4, 2, shape({.cores = 2}))
                .with_network({.latency_us = 9, .node_latency_us = 9, .bytes_per_us = 117, .crowd = 4}));
  const auto of = [&](std::string_view name, std::size_t bytes, int segments) {
    const Shape problem{.size = 8, .count = bytes, .levels = &crowded.levels};
    return price_us(*find_algorithm(Collective::all_reduce, name), problem, crowded, segments);
  };
  EXPECT_GT(of("node_halving", 4096, 1), 1.3 * of("node_doubling", 4096, 1));
  EXPECT_GT(of("node_ring", 4096, 1), 1.2 * of("node_halving", 4096, 1));
  for (const std::size_t mib : {1U, 4U, 16U})
    EXPECT_GT(of("hierarchical_ring", mib << 20U, 8), of("node_ring", mib << 20U, 8)) << mib;
}

// A member waits once for its turn on a shared core to send short blocks to all, and in each round of a ring.
TEST(Prices, OfCrowdedCoresCountTheMessagesOfATurnTogether) {
  const GroupFacts crowded =
      facts(nodes_of(4, 2, shape({.cores = 2}))
                .with_network({.latency_us = 9, .node_latency_us = 9, .bytes_per_us = 117, .crowd = 4}));
  const auto of = [&](std::string_view name, std::size_t bytes) {
    Shape problem{.size = 8, .count = bytes};
    problem.input_blocks = problem.output_blocks = Blocks::even(bytes, problem.size);
    return price_us(*find_algorithm(Collective::all_to_all, name), problem, crowded);
  };
  EXPECT_LT(of("flat", 64), 0.9 * of("pairwise", 64));
  EXPECT_LT(of("pairwise", 64), 0.7 * price("ring", crowded, 64, Collective::all_gather));
  EXPECT_GT(of("flat", 1U << 20U), of("pairwise", 1U << 20U));
}

// What is passed on piece by piece: their cores see to one while another is on the wire.
TEST(Prices, OfCrowdedCoresAreLowestForPiecesThatHideWork) {
  const GroupFacts crowded = facts(
      nodes_of(4, 2, shape({.cores = 2}))
          .with_network(
              {.latency_us = 30, .node_latency_us = 9, .bytes_per_us = 117, .short_bytes_per_us = 117, .crowd = 4}));
  const auto of = [&](std::size_t bytes, std::size_t piece) {
    const Shape problem{.size = 8, .count = bytes, .segment = piece, .levels = &crowded.levels};
    return price_us(*find_algorithm(Collective::broadcast, "node_chain"), problem, crowded);
  };
  constexpr std::size_t k = 1024;
  EXPECT_LT(of(64 * k, 16 * k), 0.8 * of(64 * k, 32 * k));
  EXPECT_LT(of(256 * k, 16 * k), of(256 * k, 32 * k));
  EXPECT_LT(of(1024 * k, 32 * k), 1.3 * 1024 * k / 117);
  EXPECT_GT(of(1024 * k, 4 * k), 1.5 * of(1024 * k, 32 * k));
}

TEST(Prices, ManyBytesWantFewCopiesAndFewBytesFewRounds) {
  const GroupFacts node = facts(nodes_of(1, 8, shape({.cores = 8})));
  EXPECT_LT(price("flat", node, 8), price("ring", node, 8));
  EXPECT_GT(price("flat", node, 1 << 26), price("ring", node, 1 << 26));
}

TEST(Prices, GrowWithBytesMembersAndDistance) {
  const MachineShape machine = shape({.cores = 8});
  const GroupFacts near = facts(nodes_of(1, 8, machine));
  const GroupFacts far = facts(nodes_of(8, 1, machine));
  for (const std::size_t bytes : {std::size_t{64}, std::size_t{1} << 20U, std::size_t{1} << 30U}) {
    EXPECT_LT(price("ring", near, bytes), price("ring", near, 2 * bytes));
    EXPECT_LT(price("ring", near, bytes), price("ring", far, bytes));
    EXPECT_LT(price("ring", facts(nodes_of(1, 4, machine)), bytes), price("ring", near, bytes));
  }
}

TEST(Prices, MembersOfANodeShareItsInterface) {
  // Every member sends to every other: sixteen times as much leaves a node of four as a node of one.
  const MachineShape machine = shape({.cores = 4});
  const double alone = price("flat", facts(nodes_of(2, 1, machine)), 1 << 26);
  const double shared = price("flat", facts(nodes_of(2, 4, machine)), 1 << 26);
  EXPECT_GT(shared, 10 * alone);
}

TEST(Prices, MembersThatShareCoresWaitForTheirTurns) {
  const Topology crowded = made_of({shape({.cores = 1})}, {{0, {{0, 0}, {0, 0}, {0, 0}, {0, 0}}}});
  EXPECT_GT(price("ring", facts(crowded), 8), 4 * price("ring", facts(nodes_of(1, 4, shape({.cores = 4}))), 8));
}

TEST(Prices, ARootThatReceivesFromAllPaysForIt) {
  const GroupFacts node = facts(nodes_of(1, 8, shape({.cores = 8})));
  const double gathered = price("flat", node, 1 << 20, Collective::gather);
  EXPECT_GT(gathered,
            7 * static_cast<double>(1 << 20) / link_costs()[static_cast<std::size_t>(node.node_link)].bytes_per_us);
}

// A root that receives from all copies the blocks of its node meanwhile, if it has a core of its own.
TEST(Prices, WithoutMessagesThatWaitNodesAndLinksWorkAtOnce) {
  const MachineShape machine = shape({.packages = 1, .cores = 8, .l3_cores = 8});
  Shape gather{.size = 32, .count = 1U << 20U};
  gather.output_blocks = Blocks::even(gather.count, gather.size);
  const PriceTerms terms =
      lockstep::price(*find_algorithm(Collective::gather, "flat"), gather, facts(nodes_of(4, 8, machine)));
  EXPECT_GT(terms.network_us, 0);
  EXPECT_GT(terms.node_us, 0);
  EXPECT_NEAR(terms.overlap_us, std::min(terms.network_us, terms.node_us), 0.001);
}

TEST(Prices, LargeGroupsArePricedQuickly) {
  const GroupFacts large = facts(nodes_of(512, 8, shape({.cores = 8})));
  EXPECT_GT(price("ring", large, 1 << 30), 0);
}

TEST(LinkCosts, AreOneForEachLinkWithProvenanceAndNeverLessThanThoseOfAShorterLink) {
  const auto costs = link_costs();
  for (std::size_t i = 0; i < costs.size(); ++i) {
    if (i > 0) {
      EXPECT_GE(costs[i].latency_us, costs[i - 1].latency_us) << i;
      EXPECT_LE(costs[i].bytes_per_us, costs[i - 1].bytes_per_us) << i;
    }
    EXPECT_EQ(static_cast<std::size_t>(costs[i].link), i);
    EXPECT_GT(costs[i].latency_us, 0);
    EXPECT_GT(costs[i].bytes_per_us, 0);
    EXPECT_FALSE(costs[i].provenance.empty());
  }
  EXPECT_EQ(costs.size(), static_cast<std::size_t>(Link::network) + 1);
  for (const CostConstant<double>& each : cost_constants()) {
    EXPECT_GT(each.value, 0) << each.name;
    EXPECT_FALSE(each.unit.empty() || each.meaning.empty() || each.provenance.empty()) << each.name;
  }
}

TEST(Prices, AreTheSumOfTheirTermsLessTheOverlap) {
  const GroupFacts crowded =
      facts(nodes_of(4, 2, shape({.cores = 2}))
                .with_network({.latency_us = 30, .node_latency_us = 9, .bytes_per_us = 117, .crowd = 4}));
  for (const std::string_view name : {"hierarchical_ring", "node_ring", "ring"}) {
    for (const int segments : {1, 8}) {
      const Shape problem{.size = 8, .count = 4U << 20U, .levels = &crowded.levels};
      const PriceTerms terms =
          lockstep::price(*find_algorithm(Collective::all_reduce, name), problem, crowded, segments);
      EXPECT_NEAR(terms.rounds_us + terms.network_us + terms.node_us + terms.combine_us - terms.overlap_us,
                  terms.total_us, 1e-6 * terms.total_us)
          << name << ' ' << segments;
      EXPECT_GE(terms.overlap_us, 0);
    }
  }
}

// Of many members, prices of one size say those of the others.
TEST(Prices, OfManyMembersAreThoseOfTheirSchedules) {
  MachineShape machine = shape({.packages = 2, .cores = 8, .l3_cores = 8});
  machine.nics = {{"ib0", 100000, none, none}};
  const auto topology = std::make_shared<const Topology>(nodes_of(64, 8, machine));
  const GroupFacts known = facts(*topology);
  for (const Collective collective : {Collective::all_reduce, Collective::all_gather, Collective::broadcast}) {
    Planner planner(topology, world_group(*topology, 0), {.split_node_element = 4096});
    for (const std::size_t bytes : {8UL, 4096UL, 1UL << 16U, 1UL << 22U}) {
      Spec spec{.collective = collective, .type = DataType::u8, .element_bytes = 1, .count = bytes};
      if (cuts_output(collective)) spec.output_blocks = Blocks::even(bytes, known.size);
      double best = 0;
      double chosen = 0;
      for (const AlgorithmCandidate& each : planner.candidates(spec)) {
        if (!each.why_not.empty() || each.name == node_algorithm) continue;
        Shape problem{.size = known.size, .count = bytes, .segment = each.piece, .levels = &known.levels};
        if (cuts_output(collective)) problem.output_blocks = spec.output_blocks;
        const double exact = price_us(*find_algorithm(collective, each.name), problem, known, each.segments);
        if (bytes >= 1U << 16U) {
          EXPECT_NEAR(each.price.total_us / exact, 1, 0.1) << each.name << ' ' << bytes;
        }
        best = best == 0 ? exact : std::min(best, exact);
        if (each.chosen) chosen = exact;
      }
      EXPECT_GT(chosen, 0);
      EXPECT_LE(chosen, best * 1.1) << to_string(collective) << ' ' << bytes;
    }
  }
}

}  // namespace
}  // namespace lockstep::test
