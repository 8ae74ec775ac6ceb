// SPDX-License-Identifier: Apache-2.0
// How two ends of a connection prove to each other who they are.
#include "tests/collectives/tcp_wires.hpp"

namespace lockstep::tcp {
namespace {

TEST(Shaking, tells_who_wants_whom_for_what) {
  for (const bool takes : {true, false}) {
    Between wires(1);
    auto caller = Handshake::calling(std::move(wires.one), key(), desk(3), 5, 2);
    auto called = Handshake::called(std::move(wires.other), key());
    for (int i = 0; i < 1000 && called.advance() == State::under_way; ++i) {
      EXPECT_EQ(caller.advance(), State::under_way);
      wires.move();
    }
    ASSERT_EQ(called.state(), State::introduced);
    EXPECT_EQ(called.from(), desk(3));
    EXPECT_EQ(called.to(), desk(5));
    EXPECT_EQ(called.channel(), 2U);
    called.answer(takes);
    for (int i = 0; i < 1000 && caller.advance() == State::under_way; ++i) {
      called.advance();
      wires.move();
    }
    EXPECT_EQ(called.state(), takes ? State::taken : State::refused);
    EXPECT_EQ(caller.state(), takes ? State::taken : State::refused);
  }
}

TEST(Shaking, fails_on_both_sides_with_another_key) {
  Ends ends = joined();
  auto caller = Handshake::calling(std::move(ends.one), key(7), desk(3), 5, 2);
  auto called = Handshake::called(std::move(ends.other), key(8));
  called.advance();
  caller.advance();
  EXPECT_EQ(called.advance(), State::failed);
  EXPECT_EQ(caller.advance(), State::failed);
}

// What is said in one, up to the verdict.
struct Said {
  Bytes challenge;
  Bytes proof;
  Bytes verdict;
};

// Like one between two who have the key, but what goes by is changed.
template <class Change>
std::pair<State, State> with_changed(const Change& change) {
  Ends of_caller = joined();
  Ends of_called = joined();
  auto caller = Handshake::calling(std::move(of_caller.one), key(), desk(3), 5, 2);
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
  if (called.advance() == State::introduced) {
    called.answer(true);
    called.advance();
  }
  said.verdict = all_of(of_called.other);
  change(said);
  if (!said.verdict.empty()) put(of_caller.other, said.verdict);
  return {caller.advance(), called.state()};
}

TEST(Shaking, fails_with_any_bit_changed) {
  EXPECT_EQ(with_changed([](const Said&) {}), std::pair(State::taken, State::taken));
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
      EXPECT_NE(states.first, State::taken) << "bit " << bit;
      if (part == &Said::verdict) continue;  // who was called cannot see what becomes of it
      EXPECT_NE(states.second, State::taken) << "bit " << bit;
    }
  }
}

TEST(Shaking, cannot_be_said_a_second_time) {
  Said before;
  with_changed([&](const Said& said) { before = said; });
  bool is_used = false;
  EXPECT_EQ(with_changed([&](Said& said) {
              if (!said.proof.empty() && !std::exchange(is_used, true)) said.proof = before.proof;
            }).second,
            State::failed);
  EXPECT_EQ(with_changed([&](Said& said) {
              if (!said.verdict.empty()) said.verdict = before.verdict;
            }).first,
            State::failed);
}

TEST(Shaking, fails_when_the_other_side_ends_or_says_something_else) {
  for (const bool calls : {true, false}) {
    for (const std::size_t words : {0U, 1U, 40U, 500U}) {
      Ends ends = joined();
      auto one = calls ? Handshake::calling(std::move(ends.one), key(), desk(3), 5, 2)
                       : Handshake::called(std::move(ends.one), key());
      one.advance();
      put(ends.other, Bytes(words, std::byte{'x'}));
      one.advance();
      ends.other.close();
      EXPECT_EQ(one.advance(), State::failed);
    }
  }
}

}  // namespace
}  // namespace lockstep::tcp
