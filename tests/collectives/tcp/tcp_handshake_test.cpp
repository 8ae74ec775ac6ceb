// SPDX-License-Identifier: Apache-2.0
// How two ends of a connection prove to each other who they are.
#include "tests/collectives/tcp/tcp_wires.hpp"

namespace lockstep::tcp {
namespace {

TEST(Shaking, TellsTheCallerTheMemberAndTheChannel) {
  for (const bool takes : {true, false}) {
    Between wires(1);
    auto caller = Handshake::calling(std::move(wires.one), key(), member_id(3), 5, 2);
    auto called = Handshake::called(std::move(wires.other), key());
    for (int i = 0; i < 1000 && called.advance() == HandshakeState::under_way; ++i) {
      EXPECT_EQ(caller.advance(), HandshakeState::under_way);
      wires.move();
    }
    ASSERT_EQ(called.state(), HandshakeState::introduced);
    EXPECT_EQ(called.from(), member_id(3));
    EXPECT_EQ(called.to(), member_id(5));
    EXPECT_EQ(called.channel(), 2U);
    called.answer(takes);
    for (int i = 0; i < 1000 && caller.advance() == HandshakeState::under_way; ++i) {
      called.advance();
      wires.move();
    }
    EXPECT_EQ(called.state(), takes ? HandshakeState::taken : HandshakeState::refused);
    EXPECT_EQ(caller.state(), takes ? HandshakeState::taken : HandshakeState::refused);
  }
}

TEST(Shaking, FailsOnBothSidesWithAnotherKey) {
  Ends ends = joined();
  auto caller = Handshake::calling(std::move(ends.one), key(7), member_id(3), 5, 2);
  auto called = Handshake::called(std::move(ends.other), key(8));
  called.advance();
  caller.advance();
  EXPECT_EQ(called.advance(), HandshakeState::failed);
  EXPECT_EQ(caller.advance(), HandshakeState::failed);
}

// What is said in one, up to the verdict.
struct Said {
  Bytes challenge;
  Bytes proof;
  Bytes verdict;
};

// Like one between two who have the key, but what goes by is changed.
template <class Change>
std::pair<HandshakeState, HandshakeState> with_changed(const Change& change) {
  Ends of_caller = joined();
  Ends of_called = joined();
  auto caller = Handshake::calling(std::move(of_caller.one), key(), member_id(3), 5, 2);
  auto called = Handshake::called(std::move(of_called.one), key());
  called.advance();
  Said said;
  said.challenge = all_of(of_called.other);
  change(said);
  put(of_caller.other, said.challenge);
  caller.advance();
  said.proof = all_of(of_caller.other);
  change(said);
  put(of_called.other, said.proof);
  if (called.advance() == HandshakeState::introduced) {
    called.answer(true);
    called.advance();
  }
  said.verdict = all_of(of_called.other);
  change(said);
  if (!said.verdict.empty()) put(of_caller.other, said.verdict);
  return {caller.advance(), called.state()};
}

TEST(Shaking, FailsWithAnyBitChanged) {
  EXPECT_EQ(with_changed([](const Said&) {}), std::pair(HandshakeState::taken, HandshakeState::taken));
  Said whole;
  with_changed([&](const Said& said) { whole = said; });
  ASSERT_FALSE(whole.verdict.empty());
  for (Bytes Said::*const part : {&Said::challenge, &Said::proof, &Said::verdict}) {
    for (std::size_t bit = 0; bit < 8 * (whole.*part).size(); ++bit) {
      bool is_done = false;
      const auto states = with_changed([&](Said& said) {
        Bytes& bytes = said.*part;
        if (is_done || bytes.empty()) return;
        is_done = true;
        bytes.at(bit / 8) ^= static_cast<std::byte>(1U << (bit % 8));
      });
      EXPECT_NE(states.first, HandshakeState::taken) << "bit " << bit;
      if (part == &Said::verdict) continue;  // who was called cannot see what becomes of it
      EXPECT_NE(states.second, HandshakeState::taken) << "bit " << bit;
    }
  }
}

TEST(Shaking, CannotBeReplayed) {
  Said before;
  with_changed([&](const Said& said) { before = said; });
  bool is_used = false;
  EXPECT_EQ(with_changed([&](Said& said) {
              if (!said.proof.empty() && !std::exchange(is_used, true)) said.proof = before.proof;
            }).second,
            HandshakeState::failed);
  EXPECT_EQ(with_changed([&](Said& said) {
              if (!said.verdict.empty()) said.verdict = before.verdict;
            }).first,
            HandshakeState::failed);
}

TEST(Shaking, FailsWhenTheOtherSideEndsOrSaysSomethingElse) {
  for (const bool calls : {true, false}) {
    for (const std::size_t words : {0U, 1U, 40U, 500U}) {
      Ends ends = joined();
      auto one = calls ? Handshake::calling(std::move(ends.one), key(), member_id(3), 5, 2)
                       : Handshake::called(std::move(ends.one), key());
      one.advance();
      put(ends.other, Bytes(words, std::byte{'x'}));
      one.advance();
      ends.other.close();
      EXPECT_EQ(one.advance(), HandshakeState::failed);
    }
  }
}

}  // namespace
}  // namespace lockstep::tcp
