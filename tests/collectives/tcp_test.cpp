// SPDX-License-Identifier: Apache-2.0
// What the transport over sockets is made of: how two prove who they are, what a lane and words make of bytes that come
// in any pieces, and who is led to whom.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <random>
#include <thread>

#include "collectives/tcp/handshake.hpp"
#include "collectives/tcp/lane_stream.hpp"
#include "collectives/tcp/reception.hpp"
#include "collectives/tcp/word_stream.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {
namespace {

using State = Handshake::State;

struct Ends {
  Descriptor one;
  Descriptor other;
};

Ends joined() {
  std::array<int, 2> both{};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK, 0, both.data()) != 0) throw std::runtime_error("no sockets");
  return {Descriptor(both[0]), Descriptor(both[1])};
}

Bytes all_of(const Descriptor& socket) {
  Bytes all;
  std::array<std::byte, 4096> part;
  for (Moved moved = read(socket, part); moved.bytes > 0; moved = read(socket, part))
    all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(moved.bytes));
  return all;
}

void put(const Descriptor& socket, std::span<const std::byte> bytes) {
  Bytes own(bytes.begin(), bytes.end());
  iovec part{own.data(), own.size()};
  ASSERT_EQ(write(socket, {&part, 1}).bytes, own.size());
}

// Two connections, between which bytes go on in pieces of any size.
class Between {
 public:
  explicit Between(unsigned seed) : random_(seed) {
    Ends a = joined();
    Ends b = joined();
    one = std::move(a.one);
    other = std::move(b.other);
    of_one_ = std::move(a.other);
    of_other_ = std::move(b.one);
  }
  void move() {
    pass(of_one_, of_other_);
    pass(of_other_, of_one_);
  }
  Descriptor one;
  Descriptor other;

 private:
  void pass(const Descriptor& from, const Descriptor& to) {
    std::array<std::byte, 70'000> part;
    constexpr std::array<std::size_t, 6> sizes = {1, 3, 16, 100, 4097, 70'000};
    const std::size_t most = sizes.at(random_() % sizes.size());
    Moved moved = read(from, std::span(part).first(most));
    for (std::size_t gone = 0; gone < moved.bytes;) {
      iovec rest{part.data() + gone, moved.bytes - gone};
      const Moved sent = write(to, {&rest, 1});
      if (sent.is_over) return;
      gone += sent.bytes;
    }
  }
  std::mt19937 random_;
  Descriptor of_one_;
  Descriptor of_other_;
};

std::shared_ptr<const Secret> key(int which = 7) {
  return std::make_shared<const Secret>(Bytes(32, static_cast<std::byte>(which)), "a test");
}

Desk desk(std::uint32_t rank, int meeting = 1) {
  Desk one;
  one.meeting.fill(static_cast<std::byte>(meeting));
  one.rank = rank;
  return one;
}

// ---- Two prove to each other who they are.

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

// ---- Messages of a lane.

std::vector<std::byte> drawn(std::mt19937& random, std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (std::byte& each : all) each = static_cast<std::byte>(random());
  return all;
}

TEST(Lane, brings_what_was_posted_in_whatever_pieces_it_comes) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Between wires(seed);
    LaneStream from;
    LaneStream to;
    from.open(std::move(wires.one));
    to.open(std::move(wires.other));
    std::vector<std::byte> window(48U << 10U);
    constexpr std::array<std::size_t, 8> sizes = {0, 1, 15, 100, 5000, 49'136, 49'137, 300'000};
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> got;
    Left left_there;
    Left left_here;
    for (std::uint64_t i = 0; i < 12; ++i) sent.push_back(drawn(random, sizes.at(random() % sizes.size())));
    for (const auto& each : sent) got.emplace_back(each.size());
    std::size_t posted = 0;
    std::size_t wanted = 0;
    for (int turn = 0; turn < 100'000 && (wanted < sent.size() || !left_here.none()); ++turn) {
      if (posted < sent.size() && random() % 2 == 0) {
        ++left_there.sends;
        from.send({{posted / 3, sent[posted].size()}, sent[posted].data(), &left_there});
        ++posted;
      }
      if (wanted < sent.size() && random() % 2 == 0) {
        ++left_here.receives;
        to.want({wanted / 3, got[wanted].data(), got[wanted].size(), &left_here});
        ++wanted;
      }
      from.flush();
      wires.move();
      to.receive(window);
    }
    EXPECT_TRUE(left_here.none() && left_there.none());
    EXPECT_EQ(got, sent);
  }
}

class OneLane : public testing::Test {
 protected:
  OneLane() {
    Ends ends = joined();
    from.open(std::move(ends.one));
    to.open(std::move(ends.other));
  }
  void send(std::uint64_t mark, const std::vector<int>& values) {
    ++left.sends;
    from.send({{mark, values.size() * sizeof(int)}, reinterpret_cast<const std::byte*>(values.data()), &left});
    from.flush();
  }
  void want(std::uint64_t mark, std::vector<int>& values) {
    ++left.receives;
    to.want({mark, reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(int), &left});
  }
  LaneStream from;
  LaneStream to;
  Left left;
  std::vector<std::byte> window = std::vector<std::byte>(1000);
};

TEST_F(OneLane, says_of_a_message_with_another_length_how_long_both_are) {
  send(1, {1, 2, 3});
  std::vector<int> got(2);
  want(1, got);
  const auto outcome = to.receive(window);
  EXPECT_TRUE(outcome.has_other_length);
  EXPECT_EQ(outcome.length, 12U);
  EXPECT_EQ(outcome.wanted, 8U);
  EXPECT_EQ(got, std::vector<int>(2));
}

TEST_F(OneLane, keeps_a_message_of_another_call_for_who_wants_it) {
  send(2, {1, 2, 3});
  std::vector<int> other(3);
  want(1, other);
  to.receive(window);
  EXPECT_TRUE(to.is_stuck());
  EXPECT_EQ(other, std::vector<int>(3));
  to.forget();
  std::vector<int> got(3);
  want(2, got);
  to.receive(window);
  EXPECT_FALSE(to.is_stuck());
  EXPECT_EQ(got, (std::vector<int>{1, 2, 3}));
}

TEST_F(OneLane, takes_nothing_that_nobody_wants) {
  send(1, {1, 2, 3});
  std::vector<int> got(3);
  EXPECT_FALSE(to.receive(window).moved);
  want(1, got);
  to.receive(window);
  send(2, {4, 5, 6});
  EXPECT_FALSE(to.receive(window).moved);
  EXPECT_EQ(got, (std::vector<int>{1, 2, 3}));
}

TEST_F(OneLane, hears_the_end_behind_what_came_before) {
  send(1, {1, 2, 3});
  from.take();
  std::vector<int> got(3);
  want(1, got);
  EXPECT_FALSE(to.receive(window).is_over);
  EXPECT_EQ(got, (std::vector<int>{1, 2, 3}));
  want(2, got);
  EXPECT_TRUE(to.receive(window).is_over);
}

// ---- Words, and messages that match by their marks.

TEST(Words, and_messages_come_in_whatever_pieces_and_whatever_order_they_are_wanted) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    Between wires(seed);
    WordStream from;
    WordStream to;
    from.open(std::move(wires.one));
    to.open(std::move(wires.other));
    constexpr std::array<std::size_t, 6> sizes = {0, 1, 100, 65'536, 65'537, 200'000};
    constexpr std::size_t count = 10;
    std::vector<std::vector<std::byte>> sent;
    std::vector<std::vector<std::byte>> got;
    std::vector<Bytes> said;
    std::vector<Bytes> heard;
    Left left_there;
    Left left_here;
    for (std::size_t i = 0; i < count; ++i) sent.push_back(drawn(random, sizes.at(random() % sizes.size())));
    for (const auto& each : sent) got.emplace_back(each.size());
    std::array<std::size_t, count> order{};
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    std::size_t posted = 0;
    std::size_t wanted = 0;
    std::vector<Bytes> nothing;
    for (int turn = 0; turn < 100'000 && (wanted < count || !left_here.none() || said.size() != heard.size()); ++turn) {
      if (posted < count && random() % 2 == 0) {
        ++left_there.sends;
        from.send({{posted, sent[posted].size()}, sent[posted].data(), &left_there});
        ++posted;
      }
      if (said.size() < count && random() % 2 == 0) {
        said.push_back(drawn(random, random() % 300));
        from.say(said.back());
      }
      if (wanted < count && random() % 2 == 0) {
        const std::size_t which = order.at(wanted++);
        ++left_here.receives;
        to.want({which, got[which].data(), got[which].size(), &left_here});
      }
      from.flush();
      from.receive(nothing);
      wires.move();
      to.receive(heard);
      to.flush();
    }
    for (int turn = 0; turn < 1000 && !left_there.none(); ++turn) {
      from.flush();
      wires.move();
      to.receive(heard);
    }
    EXPECT_TRUE(left_here.none() && left_there.none()) << "seed " << seed;
    EXPECT_EQ(got, sent);
    EXPECT_EQ(heard, said);
    EXPECT_TRUE(nothing.empty());
  }
}

class OneOfWords : public testing::Test {
 protected:
  OneOfWords() {
    Ends ends = joined();
    to.open(std::move(ends.one));
    wire = std::move(ends.other);
  }
  struct Frame {
    std::uint32_t kind;
    std::uint32_t number;
    std::uint64_t mark;
    std::uint64_t bytes;
  };
  WordStream::Outcome hears(const Frame& frame) {
    put(wire, std::as_bytes(std::span(&frame, 1)));
    return to.receive(words);
  }
  WordStream to;
  Descriptor wire;
  std::vector<Bytes> words;
};

TEST_F(OneOfWords, ends_with_what_is_none) { EXPECT_TRUE(hears({99, 0, 0, 0}).is_over); }

TEST_F(OneOfWords, ends_with_a_word_beyond_all_bounds) { EXPECT_TRUE(hears({0, 0, 0, 1ULL << 62U}).is_over); }

TEST_F(OneOfWords, ends_with_data_that_nobody_asked_for) { EXPECT_TRUE(hears({4, 1, 0, 100}).is_over); }

TEST_F(OneOfWords, passes_over_a_grant_of_what_was_not_offered) { EXPECT_FALSE(hears({3, 9, 0, 0}).is_over); }

TEST_F(OneOfWords, says_of_a_message_with_another_length_how_long_both_are) {
  Left left{0, 1};
  std::array<std::byte, 8> into{};
  to.want({5, into.data(), into.size(), &left});
  EXPECT_FALSE(hears({2, 1, 5, 100'000}).is_over);
  ASSERT_TRUE(to.other_length());
  EXPECT_EQ(to.other_length()->sent, 100'000U);
  EXPECT_EQ(to.other_length()->wanted, 8U);
}

// What was half sent goes to its end, so that what is said behind it is heard; its memory is not read any more.
TEST(Words, are_heard_behind_a_message_that_was_given_up_half_sent) {
  Ends ends = joined();
  WordStream from;
  WordStream to;
  from.open(std::move(ends.one));
  to.open(std::move(ends.other));
  std::vector<std::byte> data(4U << 20U, std::byte{1});
  std::vector<std::byte> got(data.size());
  Left left_there{1, 0};
  Left left_here{0, 1};
  std::vector<Bytes> heard;
  from.send({{1, data.size()}, data.data(), &left_there});
  to.want({1, got.data(), got.size(), &left_here});
  const auto turn = [&] {
    from.flush();
    to.receive(heard);
    to.flush();
    from.receive(heard);
  };
  turn();
  turn();
  from.flush();  // as much of it as goes
  from.forget();
  data.assign(data.size(), std::byte{2});
  from.say(to_bytes("behind"));
  for (int i = 0; i < 1000 && heard.empty(); ++i) turn();
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(to_string(heard[0]), "behind");
  EXPECT_EQ(got, std::vector<std::byte>(data.size(), std::byte{1}));
  EXPECT_TRUE(left_here.none());
}

// And nothing comes to the memory of who has given up.
TEST(Words, are_heard_behind_a_message_that_nobody_wants_any_more) {
  Ends ends = joined();
  WordStream from;
  WordStream to;
  from.open(std::move(ends.one));
  to.open(std::move(ends.other));
  const std::vector<std::byte> data(4U << 20U, std::byte{1});
  std::vector<std::byte> got(data.size());
  Left left_there{1, 0};
  Left left_here{0, 1};
  std::vector<Bytes> heard;
  from.send({{1, data.size()}, data.data(), &left_there});
  to.want({1, got.data(), got.size(), &left_here});
  from.flush();
  to.receive(heard);
  to.flush();
  from.receive(heard);
  from.flush();
  to.receive(heard);
  to.forget();
  got.assign(got.size(), std::byte{3});
  from.say(to_bytes("behind"));
  for (int i = 0; i < 1000 && heard.empty(); ++i) {
    from.flush();
    to.receive(heard);
  }
  ASSERT_EQ(heard.size(), 1U);
  EXPECT_EQ(to_string(heard[0]), "behind");
  EXPECT_EQ(got, std::vector<std::byte>(data.size(), std::byte{3}));
}

// ---- Who is led to whom.

class Receptions : public testing::Test {
 protected:
  static constexpr std::uint32_t channel = 4;
  Handshake call(std::uint32_t from, std::uint32_t to, std::uint32_t on = channel) {
    int error = 0;
    auto socket = connect(house.place(), is_near, error);
    EXPECT_TRUE(socket) << error;
    return Handshake::calling(std::move(*socket), key(), desk(from), to, on);
  }
  State end_of(Handshake& shake) {
    for (int i = 0; i < 2000 && shake.advance() == State::under_way; ++i) {
      house.move();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return shake.state();
  }
  static Bytes frames_of(std::string_view word) {
    WordStream stream;
    stream.say(to_bytes(word));
    stream.say_farewell();
    return stream.take().second;
  }
  static std::string heard_on(Descriptor socket) {
    WordStream stream;
    stream.open(std::move(socket));
    std::vector<Bytes> words;
    for (int i = 0; i < 2000 && !stream.has_heard_farewell(); ++i) {
      stream.receive(words);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return words.size() == 1 ? to_string(words[0]) : text(words.size(), " words");
  }
  bool is_near = false;
  Reception house{"127.0.0.1", false, key()};
};

TEST_F(Receptions, lead_callers_to_whom_they_want_also_before_that_one_is_there) {
  for (const bool near : {false, true}) {
    is_near = near;
    auto early = call(1, near ? 7 : 8);
    for (int i = 0; i < 20; ++i) {
      house.move();
      EXPECT_EQ(early.advance(), State::under_way);
    }
    const auto callers = house.open(desk(near ? 7 : 8));
    const auto others = house.open(desk(near ? 17 : 18));
    auto late = call(2, near ? 7 : 8);
    std::vector<Handshake> come;
    for (int i = 0; i < 2000 && come.size() < 2; ++i) {
      late.advance();
      house.move();
      for (Handshake& each : callers->take()) come.push_back(std::move(each));
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    ASSERT_EQ(come.size(), 2U);
    EXPECT_EQ(come[0].from().rank + come[1].from().rank, 3U);
    EXPECT_TRUE(others->take().empty());
    for (Handshake& each : come) {
      each.answer(true);
      each.advance();
    }
    EXPECT_EQ(end_of(early), State::taken);
    EXPECT_EQ(end_of(late), State::taken);
  }
}

TEST_F(Receptions, tell_callers_the_last_words_of_who_has_left) {
  house.open(desk(7));
  house.close(desk(7), channel, {{{2, frames_of("to rank 2")}}, frames_of("to the others")});
  auto first = call(1, 7);
  ASSERT_EQ(end_of(first), State::taken);
  EXPECT_EQ(heard_on(first.take()), "to the others");
  auto second = call(2, 7);
  ASSERT_EQ(end_of(second), State::taken);
  EXPECT_EQ(heard_on(second.take()), "to rank 2");
  auto for_data = call(1, 7, 0);
  EXPECT_EQ(end_of(for_data), State::failed);
}

TEST_F(Receptions, tell_them_also_to_who_has_called_before_and_was_not_heard) {
  house.open(desk(7));
  auto first = call(1, 7);
  for (int i = 0; i < 100; ++i) {
    first.advance();
    house.move();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  ASSERT_EQ(first.state(), State::under_way);  // nobody has taken it
  house.close(desk(7), channel, {{}, frames_of("farewell")});
  ASSERT_EQ(end_of(first), State::taken);
  EXPECT_EQ(heard_on(first.take()), "farewell");
}

TEST_F(Receptions, bring_to_its_end_what_a_member_was_about_to_say) {
  Reception other("127.0.0.1", false, key());
  const auto callers = house.open(desk(7));
  int error = 0;
  auto socket = connect(house.place(), false, error);
  ASSERT_TRUE(socket);
  other.see_off(Handshake::calling(std::move(*socket), key(), desk(1), 7, channel), frames_of("at last"));
  std::vector<Handshake> come;
  for (int i = 0; i < 2000 && come.empty(); ++i) {
    other.move();
    house.move();
    come = callers->take();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  ASSERT_EQ(come.size(), 1U);
  come[0].answer(true);
  ASSERT_EQ(come[0].advance(), State::taken);
  other.move();
  EXPECT_EQ(heard_on(come[0].take()), "at last");
}

TEST_F(Receptions, do_not_believe_strangers) {
  const auto callers = house.open(desk(7));
  int error = 0;
  auto socket = connect(house.place(), false, error);
  ASSERT_TRUE(socket);
  auto stranger = Handshake::calling(std::move(*socket), key(9), desk(1), 7, channel);
  EXPECT_EQ(end_of(stranger), State::failed);
  EXPECT_TRUE(callers->take().empty());
}

}  // namespace
}  // namespace lockstep::tcp
