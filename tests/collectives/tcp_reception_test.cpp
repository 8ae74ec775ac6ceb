// SPDX-License-Identifier: Apache-2.0
// Who is led to whom, and what callers hear of who has left.
#include <thread>

#include "collectives/tcp/reception.hpp"
#include "collectives/tcp/word_stream.hpp"
#include "tests/collectives/tcp_wires.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {
namespace {

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
