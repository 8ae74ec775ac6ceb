// SPDX-License-Identifier: Apache-2.0
// What no algorithm can pass, and what pairs of members do: the arithmetic, and that it is measured among threads.
#include "bench/limits.hpp"

#include <cmath>
#include <numeric>
#include <set>

#include "bench/pairs.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/topology/shapes.hpp"
#include "topology/base/text.hpp"
#include "topology/description.hpp"

namespace lockstep::bench {
namespace {

using test::with_members;

TEST(Limits, NameTheBindingResource) {
  const Ceilings ceilings{.message_us = 2, .read = 10, .link = 1};
  const auto binding = [&](const MinimumTraffic& moves, double kernel, double copy) {
    const auto limit = limit_of(moves, ceilings, kernel, copy);
    return text(limit ? limit->binding : "none", ' ', limit ? std::llround(limit->us) : 0);
  };
  EXPECT_EQ(binding({.memory = 8, .foreign = 8, .reduced = 8, .link = 8}, 1, 1), "lat 2");
  EXPECT_EQ(binding({.memory = 2e6}, 0, 4), "mem 250") << "4 GB/s copied are 8 GB/s through memory";
  EXPECT_EQ(binding({.memory = 8, .foreign = 1e6}, 0, 4), "read 100");
  EXPECT_EQ(binding({.reduced = 1e6}, 5, 4), "reduce 200");
  EXPECT_EQ(binding({.memory = 2e6, .link = 1e6}, 0, 4), "link 1000");
  EXPECT_EQ(limit_of({.memory = 8}, {}, 0, 0), std::nullopt);
}

TEST(Limits, CountTheBytesThatEveryAlgorithmMustMove) {
  const Topology topology =
      describe({{.shape = test::shape({.packages = 1, .numas = 1, .cores = 4, .threads = 1}), .count = 2, .ranks = 3}});
  const std::vector<int> ranks = {0, 1, 2, 3, 4, 5};
  const auto moves = [&](Collective collective) {
    return minimum_traffic({.collective = collective, .type = DataType::u8, .count = 600}, 6, topology, ranks);
  };
  EXPECT_DOUBLE_EQ(moves(Collective::all_reduce).link, 600) << "2 (N - 1) / N of the vector";
  EXPECT_DOUBLE_EQ(moves(Collective::all_reduce).memory, 1200);
  EXPECT_DOUBLE_EQ(moves(Collective::all_reduce).foreign, 500);
  EXPECT_DOUBLE_EQ(moves(Collective::all_gather).link, 1800) << "three blocks come in";
  EXPECT_DOUBLE_EQ(moves(Collective::all_to_all).link, 5400) << "nine blocks go out";
  EXPECT_DOUBLE_EQ(moves(Collective::broadcast).link, 600);
  EXPECT_DOUBLE_EQ(moves(Collective::gather).link, 1800);
  EXPECT_DOUBLE_EQ(moves(Collective::barrier).memory, 0);
  EXPECT_DOUBLE_EQ(moves(Collective::broadcast).memory, 600) << "read once and written five times, by six";
  EXPECT_DOUBLE_EQ(moves(Collective::reduce).memory, 700) << "read by all and written once";
  EXPECT_DOUBLE_EQ(moves(Collective::gather).memory, 1200);
}

TEST(Limits, AreMeasuredAmongThreads) {
  with_members(2, [](Communicator& world) {
    const Ceilings ceilings = measure_ceilings(world, {.seconds = 0.05}, 1);
    EXPECT_GT(ceilings.message_us, 0);
    EXPECT_GT(ceilings.read, 0);
    EXPECT_EQ(ceilings.link, 0) << "one node has no link";
    const double kernel = measure_kernel(world, DataType::f32, ReduceOp::sum);
    EXPECT_GT(kernel, 0);
    EXPECT_LT(kernel, 100000);
  });
}

TEST(Pairs, AreAllThereAndDisjointInEachRound) {
  for (const int members : {1, 2, 3, 4, 7, 8}) {
    std::vector<int> all(static_cast<std::size_t>(members));
    std::iota(all.begin(), all.end(), 10);
    std::set<std::pair<int, int>> seen;
    const auto rounds = rounds_of(all);
    EXPECT_EQ(rounds.size(), members < 2 ? 0U : static_cast<std::size_t>(members + members % 2 - 1));
    for (const auto& round : rounds) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        EXPECT_LT(a, b);
        EXPECT_TRUE(busy.insert(a).second && busy.insert(b).second) << "somebody is in two pairs at once";
        EXPECT_TRUE(seen.emplace(a, b).second) << "a pair comes twice";
      }
    }
    EXPECT_EQ(seen.size(), static_cast<std::size_t>(members * (members - 1) / 2));
  }
}

TEST(Pairs, AreMeasuredAndTheSameOnAllMembers) {
  with_members(3, [](Communicator& world) {
    std::vector<PairLink> links;
    std::size_t steps = 0;
    measure_links(world, {.seconds = 0.005}, {}, links, [&](std::size_t done, std::size_t all) {
      EXPECT_LE(done, all);
      ++steps;
    });
    ASSERT_EQ(links.size(), 3U);
    EXPECT_GE(steps, 6U) << "three rounds and three pairs";
    double sum_of_all = 0;
    for (const PairLink& link : links) {
      EXPECT_GT(link.latency_us, 0);
      for (const double each : {link.there, link.back, link.both, link.together}) EXPECT_GT(each, 0);
      sum_of_all += link.there + link.back + link.together + link.latency_us;
    }
    EXPECT_EQ(world.all_reduce(sum_of_all, min), sum_of_all);
    EXPECT_EQ(world.all_reduce(sum_of_all, max), sum_of_all);
  });
}

}  // namespace
}  // namespace lockstep::bench
