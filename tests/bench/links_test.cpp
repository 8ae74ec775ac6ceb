// SPDX-License-Identifier: Apache-2.0
// Which links are called slow: a slow member is named once, a slow pair by itself, and ordinary spread not at all.
#include "bench/links.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

namespace lockstep::bench {
namespace {

// All pairs of members whose own rates are given; a pair does what its slower member can.
std::vector<PairLink> pairs_of(const std::vector<double>& rates, const std::string& kind = "network") {
  std::vector<PairLink> links;
  for (std::size_t a = 0; a < rates.size(); ++a) {
    for (std::size_t b = a + 1; b < rates.size(); ++b) {
      const double rate = std::min(rates[a], rates[b]);
      links.push_back({.a = static_cast<int>(a),
                       .b = static_cast<int>(b),
                       .kind = kind,
                       .latency_us = 20,
                       .there = rate,
                       .back = rate,
                       .both = 2 * rate,
                       .together = rate});
    }
  }
  return links;
}

std::vector<std::string> hosts_of(std::size_t count) {
  std::vector<std::string> hosts;
  for (std::size_t i = 0; i < count; ++i) hosts.push_back("host" + std::to_string(i));
  return hosts;
}

TEST(Links, EqualOnesAreGoodWithTheUsualSpread) {
  std::minstd_rand random(7);
  std::uniform_real_distribution<double> spread(0.8, 1.2);
  for (int turn = 0; turn < 200; ++turn) {
    std::vector<PairLink> links = pairs_of({1, 1, 1, 1, 1});
    for (PairLink& link : links) {
      link.there *= spread(random);
      link.back *= spread(random);
      link.latency_us *= spread(random);
    }
    const LinkVerdict verdict = judge_links(links);
    EXPECT_TRUE(verdict.comparable);
    EXPECT_TRUE(verdict.members.empty());
    EXPECT_EQ(verdict.slow_pairs, 0U);
  }
}

TEST(Links, ASlowMemberIsNamedAndExplainsItsPairs) {
  for (const std::size_t count : {3U, 4U, 9U}) {
    std::vector<double> rates(count, 1.0);
    rates[1] = 1.0 / 3;
    std::vector<PairLink> links = pairs_of(rates);
    const LinkVerdict verdict = judge_links(links);
    ASSERT_EQ(verdict.members.size(), 1U) << count;
    EXPECT_EQ(verdict.members[0].member, 1);
    EXPECT_EQ(verdict.members[0].kind, "network");
    EXPECT_NE(verdict.members[0].why.find("0.333 GB/s"), std::string::npos) << verdict.members[0].why;
    EXPECT_EQ(verdict.slow_pairs, 0U);
    for (const PairLink& link : links) EXPECT_EQ(link.slow, link.a == 1 || link.b == 1);
    EXPECT_EQ(good_hosts(links, verdict, hosts_of(count)).size(), count - 1);
  }
}

TEST(Links, ASlowWayInOnlyIsSeen) {
  std::vector<PairLink> links = pairs_of({1, 1, 1, 1});
  for (PairLink& link : links) {
    if (link.a == 3) link.back = 0.2;
    if (link.b == 3) link.there = 0.2;
  }
  const LinkVerdict verdict = judge_links(links);
  ASSERT_EQ(verdict.members.size(), 1U);
  EXPECT_EQ(verdict.members[0].member, 3);
  EXPECT_NE(verdict.members[0].why.find("receives"), std::string::npos) << verdict.members[0].why;
}

TEST(Links, ASlowPairOfGoodMembersIsNamedAlone) {
  std::vector<PairLink> links = pairs_of({1, 1, 1, 1});
  links[4].back = 0.3;  // 1 and 3
  const LinkVerdict verdict = judge_links(links);
  EXPECT_TRUE(verdict.members.empty());
  EXPECT_EQ(verdict.slow_pairs, 1U);
  EXPECT_TRUE(links[4].slow);
  EXPECT_NE(links[4].why.find("0.3 GB/s back"), std::string::npos) << links[4].why;
  EXPECT_EQ(std::ranges::count_if(links, [](const PairLink& link) { return link.slow; }), 1);
  EXPECT_EQ(good_hosts(links, verdict, hosts_of(4)).size(), 3U) << "one of the two is enough to leave out";
  const std::string words = links_text(links, verdict, hosts_of(4));
  EXPECT_NE(words.find("SLOW  rank 1 (host1) to rank 3 (host3): 0.3 GB/s back"), std::string::npos) << words;
  EXPECT_NE(words.find("0.3*"), std::string::npos) << words;
}

TEST(Links, LateMessagesAreSlowToo) {
  std::vector<PairLink> links = pairs_of({1, 1, 1, 1});
  for (PairLink& link : links) {
    if (link.a == 0) link.latency_us = 70;
  }
  const LinkVerdict verdict = judge_links(links);
  ASSERT_EQ(verdict.members.size(), 1U);
  EXPECT_EQ(verdict.members[0].member, 0);
  EXPECT_NE(verdict.members[0].why.find("70 us"), std::string::npos) << verdict.members[0].why;
}

TEST(Links, KindsAreJudgedApart) {
  std::vector<PairLink> links = pairs_of({10, 10, 10}, "same_numa");
  for (PairLink& link : pairs_of({1, 1, 1})) links.push_back(link);
  const LinkVerdict verdict = judge_links(links);
  EXPECT_TRUE(verdict.members.empty()) << "a network is no slow memory";
  EXPECT_EQ(verdict.slow_pairs, 0U);
}

TEST(Links, AreNotJudgedWithinNodesWithSharedCores) {
  std::vector<PairLink> links = pairs_of({1, 0.1, 1}, "shared_cache");
  EXPECT_FALSE(judge_links(links, {.network_only = true}).comparable);
  EXPECT_EQ(judge_links(links).members.size(), 1U);
  std::vector<PairLink> far = pairs_of({1, 0.1, 1});
  EXPECT_EQ(judge_links(far, {.network_only = true}).members.size(), 1U);
}

TEST(Links, TwoMembersHaveNobodyToBeComparedWith) {
  std::vector<PairLink> links = pairs_of({1, 0.1});
  const LinkVerdict verdict = judge_links(links);
  EXPECT_FALSE(verdict.comparable);
  EXPECT_TRUE(verdict.members.empty());
  EXPECT_FALSE(links[0].slow);
}

}  // namespace
}  // namespace lockstep::bench
