// SPDX-License-Identifier: Apache-2.0
// What survivors say to each other as bytes; and a story in which each rule of theirs is needed, word by word.
#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <utility>

#include "collectives/engine/shrink_consensus.hpp"
#include "topology/base/error.hpp"

namespace lockstep::test {
namespace {

using shrinking::BuildResult;
using shrinking::BuildState;
using shrinking::ShrinkConsensus;
using shrinking::ShrinkDecision;
using shrinking::ShrinkStage;
using std::chrono::milliseconds;

// A few members, and what is on its way between each two of them.
class Few : public testing::Test {
 protected:
  void begin(int size, WaitLimits given) {
    members_.reserve(static_cast<std::size_t>(size));
    for (int rank = 0; rank < size; ++rank) {
      members_.emplace_back(rank, size, given, "test");
      members_.back().begin(Duration{});
      carry(rank);
    }
    for (int from = 0; from < size; ++from) {
      for (int to = 0; to < size; ++to) pass(from, to);
    }
  }
  ShrinkConsensus& member(int rank) { return members_[static_cast<std::size_t>(rank)]; }
  void carry(int from) {
    for (auto& [peer, bytes] : member(from).take_outgoing()) wire_[{from, peer}].push_back(std::move(bytes));
  }
  void pass(int from, int to) {
    for (const Bytes& each : std::exchange(wire_[{from, to}], {})) member(to).handle(from, each);
    carry(to);
  }
  void move(int rank, Duration now) {
    member(rank).move(now);
    carry(rank);
  }
  // What is not with the other one yet.
  void drop(int from, int to) { wire_[{from, to}].clear(); }

 private:
  std::vector<ShrinkConsensus> members_;
  std::map<std::pair<int, int>, std::deque<Bytes>> wire_;
};

TEST_F(Few, KeepDecisionsThatTheDeadMayHaveMade) {
  begin(3, {});
  move(0, milliseconds(1));
  for (const int each : {1, 2}) {
    pass(0, each);
    pass(each, 0);
  }
  move(0, milliseconds(2));
  pass(0, 2);
  pass(2, 0);
  move(0, milliseconds(3));  // two of three have accepted it, and it dies before it has said so
  ASSERT_TRUE(member(0).verdict());
  for (const int each : {1, 2}) {
    drop(0, each);
    member(each).report_state(0, Transport::PeerState::ended);
    carry(each);
  }
  for (int round = 4; round < 10; ++round) {
    move(1, milliseconds(round));
    pass(1, 2);
    pass(2, 1);
  }
  ASSERT_TRUE(member(1).verdict());
  EXPECT_EQ(*member(1).verdict(), *member(0).verdict());
  EXPECT_EQ(member(2).verdict(), member(1).verdict());
}

TEST_F(Few, EndWhereTwoLiveMembersHaveLostEachOther) {
  begin(3, {Duration{}, std::chrono::seconds(60)});
  member(1).report_state(2, Transport::PeerState::silent);
  member(2).report_state(1, Transport::PeerState::silent);
  for (int round = 0; round < 100 && !member(0).verdict(); ++round) {
    for (const int each : {1, 2}) {
      carry(each);
      pass(each, 0);
    }
    move(0, milliseconds(500 * round));
    for (const int each : {1, 2}) pass(0, each);
  }
  ASSERT_TRUE(member(0).verdict());
  EXPECT_EQ(member(0).verdict()->stage, ShrinkStage::failed);
  EXPECT_NE(member(0).verdict()->why.find("rank 1 does not reach rank 2"), std::string::npos)
      << member(0).verdict()->why;
  for (const int each : {1, 2}) EXPECT_EQ(member(each).verdict(), member(0).verdict());
}

// Five members, of which 2, 3 and 4 have decided that all fails, since nobody led in time. They die; what they decided
// is on its way to 1, and not to 0, who leads then.
class LateDecision : public Few {
 protected:
  LateDecision() { begin(5, {Duration{}, milliseconds(20)}); }

  void decide_without_the_first() {
    constexpr milliseconds late{61};
    for (int round = 0; round < 3; ++round) {
      member(2).move(late);
      carry(2);
      for (const int each : {3, 4}) {
        pass(2, each);
        pass(each, 2);
      }
    }
    ASSERT_TRUE(member(2).verdict());
    ASSERT_EQ(member(2).verdict()->stage, ShrinkStage::failed);
    drop(2, 0);
  }
  void lose_them(int who) {
    for (const int each : {2, 3, 4}) member(who).report_state(each, Transport::PeerState::ended);
    carry(who);
  }
  void let_the_first_lead() {
    for (int round = 0; round < 5; ++round) {
      member(0).move(milliseconds(62));
      carry(0);
      pass(0, 1);
      pass(1, 0);
    }
  }
  void expect_that_both_know_it() {
    EXPECT_FALSE(member(0).verdict()) << "who could know more was not waited for";
    pass(2, 1);
    lose_them(1);
    let_the_first_lead();
    ASSERT_TRUE(member(0).verdict());
    ASSERT_TRUE(member(1).verdict());
    EXPECT_EQ(*member(0).verdict(), *member(1).verdict());
    EXPECT_EQ(member(0).verdict()->stage, ShrinkStage::failed);
  }
};

TEST_F(LateDecision, IsHeardBeforeAnybodyAnswersANewLeader) {
  decide_without_the_first();
  lose_them(0);
  let_the_first_lead();
  expect_that_both_know_it();
}

TEST_F(LateDecision, IsHeardThoughTheNewLeaderHadBegunBefore) {
  member(0).move(milliseconds(1));
  carry(0);
  pass(0, 1);
  pass(1, 0);
  decide_without_the_first();
  lose_them(0);
  let_the_first_lead();
  expect_that_both_know_it();
}

TEST(ShrinkConsensus, ReadBackTheirMessages) {
  const ShrinkDecision verdict{.stage = ShrinkStage::build, .members = {0, 2}, .why = "why"};
  const std::vector<shrinking::ShrinkMessage> all = {
      {1, shrinking::JoinMessage{{1}, {BuildState::unlucky, Code::stall, "so"}}},
      {2, shrinking::PrepareMessage{7, {1, 3}}},
      {3, shrinking::PromiseMessage{7, 5, verdict}},
      {4, shrinking::ProposeMessage{7, verdict}},
      {5, shrinking::AcceptMessage{7}},
      {6, shrinking::RefuseMessage{8}},
      {7, shrinking::DecidedMessage{verdict}}};
  for (const shrinking::ShrinkMessage& each : all) {
    const Bytes bytes = to_bytes(each);
    EXPECT_EQ(shrinking::parse_shrink_message(bytes, 4), each);
    for (std::size_t length = 0; length < bytes.size(); ++length)
      EXPECT_THROW(shrinking::parse_shrink_message(std::span(bytes).first(length), 4), Error);
  }
  EXPECT_THROW(shrinking::parse_shrink_message(to_bytes(all[1]), 3), Error) << "a rank that there is not";
}

}  // namespace
}  // namespace lockstep::test
