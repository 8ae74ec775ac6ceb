// SPDX-License-Identifier: Apache-2.0
// Who is led to whom, and what callers hear of who has left.
#include <sys/epoll.h>

#include <thread>

#include "collectives/tcp/acceptor.hpp"
#include "collectives/tcp/control_stream.hpp"
#include "tests/collectives/tcp/tcp_wires.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::tcp {
namespace {

class Receptions : public testing::Test {
 protected:
  static constexpr std::uint32_t channel = 4;
  Handshake call(std::uint32_t from, std::uint32_t to, std::uint32_t on = channel) {
    int error = 0;
    auto socket = connect(acceptor.address(), is_local, error);
    EXPECT_TRUE(socket) << error;
    return Handshake::calling(std::move(*socket), key(), member_id(from), to, on);
  }
  HandshakeState end_of(Handshake& shake) {
    for (int i = 0; i < 2000 && shake.advance() == HandshakeState::under_way; ++i) {
      acceptor.progress();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return shake.state();
  }
  static Bytes frames_of(std::string_view word) {
    ControlStream stream;
    stream.post_control(to_bytes(word));
    stream.post_farewell();
    return stream.release().second;
  }
  static std::string heard_on(Descriptor socket) {
    ControlStream stream;
    stream.open(std::move(socket));
    std::vector<Bytes> words;
    for (int i = 0; i < 2000 && !stream.has_farewell(); ++i) {
      stream.receive(words);
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
    return words.size() == 1 ? to_string(words[0]) : text(words.size(), " words");
  }
  bool is_local = false;
  Acceptor acceptor{"127.0.0.1", false, key()};
};

TEST_F(Receptions, ConnectCallersAlsoBeforeTheMemberIsThere) {
  for (const bool near : {false, true}) {
    is_local = near;
    auto early = call(1, near ? 7 : 8);
    for (int i = 0; i < 20; ++i) {
      acceptor.progress();
      EXPECT_EQ(early.advance(), HandshakeState::under_way);
    }
    const auto callers = acceptor.open(member_id(near ? 7 : 8));
    const auto others = acceptor.open(member_id(near ? 17 : 18));
    auto late = call(2, near ? 7 : 8);
    std::vector<Handshake> come;
    for (int i = 0; i < 2000 && come.size() < 2; ++i) {
      late.advance();
      acceptor.progress();
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
    EXPECT_EQ(end_of(early), HandshakeState::taken);
    EXPECT_EQ(end_of(late), HandshakeState::taken);
  }
}

TEST_F(Receptions, TellCallersTheLastWordsOfMembersThatLeft) {
  acceptor.open(member_id(7));
  acceptor.close(member_id(7), channel, {{{2, frames_of("to rank 2")}}, frames_of("to the others")});
  auto first = call(1, 7);
  ASSERT_EQ(end_of(first), HandshakeState::taken);
  EXPECT_EQ(heard_on(first.take()), "to the others");
  auto second = call(2, 7);
  ASSERT_EQ(end_of(second), HandshakeState::taken);
  EXPECT_EQ(heard_on(second.take()), "to rank 2");
  auto for_data = call(1, 7, 0);
  EXPECT_EQ(end_of(for_data), HandshakeState::failed);
}

TEST_F(Receptions, TellLastWordsToEarlierCallers) {
  acceptor.open(member_id(7));
  auto first = call(1, 7);
  for (int i = 0; i < 100; ++i) {
    first.advance();
    acceptor.progress();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  ASSERT_EQ(first.state(), HandshakeState::under_way);  // nobody has taken it
  acceptor.close(member_id(7), channel, {{}, frames_of("farewell")});
  ASSERT_EQ(end_of(first), HandshakeState::taken);
  EXPECT_EQ(heard_on(first.take()), "farewell");
}

TEST_F(Receptions, FinishTheMessagesOfClosedMembers) {
  Acceptor other("127.0.0.1", false, key());
  const auto callers = acceptor.open(member_id(7));
  int error = 0;
  auto socket = connect(acceptor.address(), false, error);
  ASSERT_TRUE(socket);
  other.close_connection(Handshake::calling(std::move(*socket), key(), member_id(1), 7, channel), frames_of("at last"));
  std::vector<Handshake> come;
  for (int i = 0; i < 2000 && come.empty(); ++i) {
    other.progress();
    acceptor.progress();
    come = callers->take();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
  ASSERT_EQ(come.size(), 1U);
  come[0].answer(true);
  ASSERT_EQ(come[0].advance(), HandshakeState::taken);
  other.progress();
  EXPECT_EQ(heard_on(come[0].take()), "at last");
}

// By the kernel's own limit, which a setting does not raise.
TEST_F(Receptions, LimitOfLiveCommunicatorsIsNamed) {
  constexpr int more_than_any = 600;
  std::vector<std::pair<Descriptor, std::shared_ptr<Acceptor::IncomingConnections>>> living;
  std::string end = "no error";
  try {
    for (std::uint32_t number = 0; living.size() < more_than_any; ++number) {
      Descriptor place = made([] { return ::epoll_create1(EPOLL_CLOEXEC); });
      ASSERT_TRUE(place);
      acceptor.add_to(place);
      living.emplace_back(std::move(place), acceptor.open(member_id(number)));
    }
  } catch (const Error& error) {
    end = error.what();
  }
  EXPECT_NE(end.find("about 500"), std::string::npos) << end;
  EXPECT_NE(end.find(text(living.size(), " are live")), std::string::npos) << end;
  EXPECT_NE(end.find("-> end communicators"), std::string::npos) << end;
}

TEST_F(Receptions, RefuseStrangers) {
  const auto callers = acceptor.open(member_id(7));
  int error = 0;
  auto socket = connect(acceptor.address(), false, error);
  ASSERT_TRUE(socket);
  auto stranger = Handshake::calling(std::move(*socket), key(9), member_id(1), 7, channel);
  EXPECT_EQ(end_of(stranger), HandshakeState::failed);
  EXPECT_TRUE(callers->take().empty());
}

TEST_F(Receptions, LookOnlyAtStrangersThatSpeak) {
  const auto callers = acceptor.open(member_id(7));
  constexpr std::size_t number = 100;
  std::vector<Descriptor> silent;
  int error = 0;
  for (std::size_t i = 0; i < number; ++i) {
    auto socket = connect(acceptor.address(), i % 2 == 0, error);
    ASSERT_TRUE(socket) << error;
    silent.push_back(std::move(*socket));
  }
  for (int i = 0; i < 2000 && acceptor.unverified_count() < number; ++i) acceptor.progress();
  ASSERT_EQ(acceptor.unverified_count(), number);
  const std::uint64_t before = acceptor.unverified_advances();
  for (int i = 0; i < 100; ++i) acceptor.progress();
  EXPECT_EQ(acceptor.unverified_advances(), before);
  auto member = call(1, 7);
  std::vector<Handshake> come;
  for (int i = 0; i < 2000 && come.empty(); ++i) {
    member.advance();
    acceptor.progress();
    come = callers->take();
  }
  EXPECT_EQ(come.size(), 1U);
  EXPECT_LE(acceptor.unverified_advances(), before + 10);
  silent.clear();
  for (int i = 0; i < 2000 && acceptor.unverified_count() > 0; ++i) acceptor.progress();
  EXPECT_EQ(acceptor.unverified_count(), 0U);
}

}  // namespace
}  // namespace lockstep::tcp
