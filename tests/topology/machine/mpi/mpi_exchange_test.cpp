// SPDX-License-Identifier: Apache-2.0
// The exchange over MPI, the session and the discovered topology, with real ranks under mpirun.
#include "tests/support/mpi_test.hpp"

#include <unistd.h>

#include <array>
#include <regex>
#include <set>
#include <thread>

#include "tests/support/lacks.hpp"
#include "tests/support/sanitized.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/group.hpp"
#include "topology/members.hpp"

namespace lockstep {
namespace {

using test::NeedsRanks;
using test::session;
using test::world;
using namespace std::chrono_literals;

// Those ranks with their host and processes.
std::string missing(const IndexSet& ranks) {
  std::vector<MemberPlace> places;
  const Topology& topology = test::session().topology();
  for (const int rank : ranks.members())
    places.push_back({topology.node(topology.member(rank).node).host, topology.member(rank).process});
  return text(member_names(ranks, places), " did not come");
}

Bytes block(int rank) { return Bytes(static_cast<std::size_t>(rank * 7 % 5), static_cast<std::byte>(rank)); }

TEST(MpiExchange, GathersBlocksOfUnequalLength) {
  for (int round = 0; round < 50; ++round) {
    const auto all = world().all_gather("blocks", block(world().rank() + round));
    ASSERT_EQ(all.size(), static_cast<std::size_t>(world().size()));
    for (int rank = 0; rank < world().size(); ++rank)
      ASSERT_EQ(all[static_cast<std::size_t>(rank)], block(rank + round));
  }
}

TEST(MpiExchange, GathersMegabytes) {
  const std::size_t size = 3'000'000;
  const auto all = world().all_gather("large", Bytes(size, static_cast<std::byte>(world().rank())));
  for (int rank = 0; rank < world().size(); ++rank) {
    ASSERT_EQ(all[static_cast<std::size_t>(rank)], Bytes(size, static_cast<std::byte>(rank)));
  }
}

TEST(MpiExchange, BroadcastsFromEveryRoot) {
  for (int root = 0; root < world().size(); ++root) {
    ASSERT_EQ(to_string(world().broadcast("word", to_bytes(text("from ", world().rank())), root)), text("from ", root));
  }
}

TEST(MpiExchange, SplitsByColourAndKeyAndSplitsAgain) {
  const int colour = world().rank() % 3 == 2 ? -1 : world().rank() % 3;
  const auto part = world().split(colour, -world().rank());
  ASSERT_EQ(part == nullptr, colour < 0);
  if (!part) return;
  int last = world().size();
  for (const Bytes& bytes : part->all_gather("ranks", Writer().put(world().rank()).take())) {
    const int rank = Reader(bytes).get<int>();
    ASSERT_EQ(rank % 3, colour);
    ASSERT_LT(rank, last);
    last = rank;
  }
  const auto copy = part->duplicate();
  copy->barrier("in the copy");
  part->barrier("in the part");
}

// There are channels for about a thousand. More ranks than cores take long and prove the same.
TEST(MpiExchange, AThousandSplitsUseUpNothing) {
  const int splits = world().size() <= 2 ? 1000 : 50;
  for (int i = 0; i < splits; ++i) world().duplicate()->barrier("once");
}

TEST(MpiExchange, ThousandsOfFailuresUseUpNothing) {
  const int failures = world().size() <= 2 && !test::sanitized ? 2000 : 50;  // errors take long with sanitizers
  for (int i = 0; i < failures; ++i) {
    const auto failing = world().duplicate();
    failing->fail("a test");
    EXPECT_THROW(failing->barrier("after the failure"), Error);
  }
  EXPECT_NO_THROW(world().duplicate()->barrier("the next one works"));
}

TEST(MpiExchange, LimitOfLiveExchangesIsNamed) {
  if (session().backend()) GTEST_SKIP() << test::lacks("needs MPI");
  if (world().size() > 2) return;  // the limit is the same for any number of ranks
  std::vector<std::unique_ptr<Exchange>> living;
  std::string end = "no error";
  constexpr int more_than_any = 2000;
  try {
    while (living.size() < more_than_any) living.push_back(world().duplicate());
  } catch (const Error& error) {
    end = error.what();
  }
  std::smatch found;
  const std::regex numbers(
      "their limit here is (\\d+) channels, of which (\\d+) belong to communicators that are live;");
  ASSERT_TRUE(std::regex_search(end, found, numbers)) << end;
  const std::size_t live = std::stoul(found[2]);
  EXPECT_GE(live, living.size()) << end;
  EXPECT_LT(live, living.size() + 100) << "the session and this test have some as well: " << end;
  EXPECT_GE(std::stoul(found[1]), live) << end;
  EXPECT_NE(end.find("-> end communicators"), std::string::npos) << end;
}

TEST(MpiExchange, ExchangesDoNotMixWhenUsedInDifferentOrder) {
  const auto a = world().duplicate();
  const auto b = world().duplicate();
  // A barrier of one rank alone cannot end; so both are driven in one order here, and their blocks must
  // not be confused although all travel on one communicator.
  for (int round = 0; round < 20; ++round) {
    const auto from_a = a->all_gather("a", to_bytes(text("a", round)));
    const auto from_b = b->all_gather("b", to_bytes(text("b", round)));
    for (const Bytes& bytes : from_a) ASSERT_EQ(to_string(bytes), text("a", round));
    for (const Bytes& bytes : from_b) ASSERT_EQ(to_string(bytes), text("b", round));
  }
}

std::string ending(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

struct Dinner {
  std::unique_ptr<Exchange> meeting;
  std::string end;  // here
};

// Some do not come, rank 1 may be late. On a busy machine others may come too late for the limit and are named as well,
// rightly: so it is held again with more time, until all that come do so in good time. All ranks agree on that.
Dinner dinner_without(const std::set<int>& absent, WaitLimits wait_limits, Duration late = {}) {
  using Clock = std::chrono::steady_clock;  // of one machine, also where it plays several nodes
  constexpr int most = 32;
  for (int more = 1;; more *= 2) {
    Dinner dinner{world().duplicate(), {}};
    if (world().rank() == 1) std::this_thread::sleep_for(late * more);
    const auto come = Clock::now().time_since_epoch().count();
    if (!absent.contains(world().rank())) {
      const WaitLimits longer{wait_limits.warn * more, wait_limits.limit * more};
      dinner.end = ending([&] { dinner.meeting->all_gather("dinner", {}, longer); });
    }
    std::set<Clock::rep> times;
    const auto all = world().all_gather("after dinner", Writer().put(come).take());
    for (int rank = 0; rank < world().size(); ++rank) {
      if (!absent.contains(rank)) times.insert(Reader(all[static_cast<std::size_t>(rank)]).get<Clock::rep>());
    }
    const Clock::duration spread(*times.rbegin() - *times.begin());
    if (spread < late * more + wait_limits.limit * more / 4 || more == most) return dinner;
  }
}

// The first, the second, and the last rank in turn do not come; all others must name exactly it.
TEST(MpiExchangeFailure, WhoIsMissingIsNamedByAllWhoeverItIs) {
  if (world().size() == 1) return;
  for (const int absent : std::set{0, 1, world().size() - 1}) {
    const Dinner dinner = dinner_without({absent}, {100ms, 400ms});
    if (world().rank() != absent) {
      EXPECT_NE(dinner.end.find("LOCKSTEP-E014"), std::string::npos) << dinner.end;
      EXPECT_NE(dinner.end.find(missing({absent})), std::string::npos) << "absent " << absent << ": " << dinner.end;
    } else {
      const std::string end = ending([&] { dinner.meeting->barrier("dinner"); });
      EXPECT_NE(end.find("LOCKSTEP-E014"), std::string::npos) << "the late one is told: " << end;
    }
  }
}

class MpiExchangeThree : public NeedsRanks<3> {};

TEST_F(MpiExchangeThree, SeveralMissingAreAllNamed) {
  const int last = world().size() - 1;
  const std::string end = dinner_without({0, last}, {100ms, 400ms}).end;
  if (world().rank() != 0 && world().rank() != last) {
    EXPECT_NE(end.find(missing({0, last})), std::string::npos) << end;
  }
}

TEST_F(MpiExchangeThree, ALateOneIsNoFailure) {
  const auto meeting = world().duplicate();
  if (world().rank() == 1) std::this_thread::sleep_for(300ms);
  EXPECT_NO_THROW(meeting->all_gather("dinner", {}, {100ms, 20s}));
  EXPECT_NO_THROW(meeting->barrier("and the next one works"));
}

// Rank 0 comes when another has begun to collect, the last but one a little later, the last never.
TEST_F(MpiExchangeThree, ThoseWhoComeLateAreNotAccused) {
  if (world().size() < 4) GTEST_SKIP() << test::lacks("needs 4 ranks");
  const auto meeting = world().duplicate();
  const int last = world().size() - 1;
  if (world().rank() == 0) std::this_thread::sleep_for(500ms);
  if (world().rank() == last - 1) std::this_thread::sleep_for(700ms);
  if (world().rank() != last) {
    const std::string end = ending([&] { meeting->all_gather("dinner", {}, {100ms, 2s}); });
    EXPECT_NE(end.find(text(": ", missing({last}))), std::string::npos) << end;
  }
  world().barrier("after dinner");
}

TEST_F(MpiExchangeThree, WithoutAWarningTimeOnlyTheMissingAreNamed) {
  const int last = world().size() - 1;
  const std::string end = dinner_without({last}, {0ms, 700ms}, 400ms).end;
  if (world().rank() != last) {
    EXPECT_NE(end.find(text(": ", missing({last}))), std::string::npos) << end;
  }
}

TEST_F(MpiExchangeThree, AFailedExchangeWithLargeDataLeavesOthersAlone) {
  const auto meeting = world().duplicate();
  if (world().rank() != 0) {
    EXPECT_THROW(meeting->all_gather("dinner", Bytes(3'000'000), {100ms, 300ms}), Error);
  }
  for (int i = 0; i < 3; ++i) EXPECT_NO_THROW(world().all_gather("after dinner", Bytes(10'000), {5s, 20s}));
}

TEST_F(MpiExchangeThree, AChannelThatIsUsedAgainForgetsWhatWasSaidOnIt) {
  {
    const auto first = world().duplicate();
    if (world().rank() == 1) std::this_thread::sleep_for(500ms);
    EXPECT_NO_THROW(first->all_gather("late", {}, {50ms, 20s}));
    world().barrier("the first is over");
  }
  const auto second = world().duplicate();
  if (world().rank() != 1) {
    const std::string end = ending([&] { second->all_gather("dinner", {}, {100ms, 1500ms}); });
    EXPECT_NE(end.find(text(": ", missing({1}))), std::string::npos) << end;
  }
  world().barrier("after dinner");
}

class MpiExchangeTwo : public NeedsRanks<2> {};

TEST_F(MpiExchangeTwo, DifferentCallsAreAnErrorOnAllThatNamesBoth) {
  const auto meeting = world().duplicate();
  const std::string end = ending([&] { meeting->barrier(world().rank() == world().size() - 1 ? "lunch" : "dinner"); });
  EXPECT_NE(end.find("LOCKSTEP-E016"), std::string::npos) << end;
  EXPECT_NE(end.find("\"lunch\""), std::string::npos) << end;
  EXPECT_NE(end.find("\"dinner\""), std::string::npos) << end;
  EXPECT_NE(ending([&] { meeting->barrier("again"); }).find("LOCKSTEP-E017"), std::string::npos);
}

TEST_F(MpiExchangeTwo, OneThatFailsSetsTheOthersFreeAtOnce) {
  const auto meeting = world().duplicate();
  const auto begin = std::chrono::steady_clock::now();
  if (world().rank() == 1) {
    meeting->fail("no wine");
  } else {
    const std::string end = ending([&] { meeting->barrier("dinner"); });
    EXPECT_NE(end.find("rank 1 failed: no wine"), std::string::npos) << end;
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 10s);
  }
  world().barrier("after dinner");
}

TEST(MpiTopology, IsTheSameOnAllRanksAndTrue) {
  const Topology& topology = session().topology();
  EXPECT_EQ(topology.size(), session().size());
  for (const Bytes& bytes : world().all_gather("fingerprints", Writer().put(topology.fingerprint()).take())) {
    EXPECT_EQ(Reader(bytes).get<std::uint64_t>(), topology.fingerprint());
  }
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  std::set<std::string> hosts;
  for (const Bytes& bytes : world().all_gather("hosts", to_bytes(host.data()))) hosts.insert(to_string(bytes));
  EXPECT_EQ(topology.node_count(), static_cast<int>(hosts.size())) << "every host of the tests has its own processes";
  EXPECT_EQ(topology.node(topology.member(session().rank()).node).host, host.data());
  EXPECT_EQ(topology.member(session().rank()).process, static_cast<int>(::getpid()));
  EXPECT_TRUE(world_group(topology, session().rank()).contains_me());
}

TEST(MpiSession, SaysWhatItGot) {
  EXPECT_TRUE(session().started_mpi());
  EXPECT_GE(session().thread_level(), ThreadLevel::serialized);
  EXPECT_FALSE(mpi_version().empty());
}

TEST(MpiSession, CanBeMadeAgainWhileOneLives) {
  for (int i = 0; i < 5; ++i) {
    Session inner;
    EXPECT_FALSE(inner.started_mpi());
    EXPECT_EQ(inner.rank(), session().rank());
    inner.exchange().barrier("inner");
  }
}

}  // namespace
}  // namespace lockstep
