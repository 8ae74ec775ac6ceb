// SPDX-License-Identifier: Apache-2.0
// What a lane and words make of bytes that come in any pieces.
#include <algorithm>
#include <array>
#include <numeric>
#include <random>

#include "collectives/tcp/control_stream.hpp"
#include "collectives/tcp/lane_stream.hpp"
#include "tests/collectives/tcp/tcp_wires.hpp"

namespace lockstep::tcp {
namespace {

std::vector<std::byte> drawn(std::mt19937& random, std::size_t bytes) {
  std::vector<std::byte> all(bytes);
  for (std::byte& each : all) each = static_cast<std::byte>(random());
  return all;
}

// Messages of drawn sizes, and what comes of them.
struct Mail {
  template <std::size_t N>
  Mail(std::mt19937& random, const std::array<std::size_t, N>& sizes, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) sent.push_back(drawn(random, sizes.at(random() % N)));
    for (const auto& each : sent) got.emplace_back(each.size());
  }
  template <class Stream>
  void post(Stream& from, std::uint64_t call_tag) {
    ++left_there.sends;
    from.post_send({{call_tag, sent[posted].size()}, sent[posted].data(), &left_there});
    ++posted;
  }
  template <class Stream>
  void want(Stream& to, std::size_t which, std::uint64_t call_tag) {
    ++left_here.receives;
    to.post_receive({call_tag, got[which].data(), got[which].size(), &left_here});
    ++wanted;
  }
  bool is_over() const { return wanted == sent.size() && left_here.none(); }

  std::vector<std::vector<std::byte>> sent;
  std::vector<std::vector<std::byte>> got;
  PendingCounts left_there;
  PendingCounts left_here;
  std::size_t posted = 0;
  std::size_t wanted = 0;
};

// Two ends of a stream, between which bytes go on in pieces of any size.
template <class Stream>
struct InPieces {
  explicit InPieces(unsigned seed) : wires(seed) {
    from.open(std::move(wires.one));
    to.open(std::move(wires.other));
  }
  Between wires;
  Stream from;
  Stream to;
};

TEST(Lane, DeliversMessagesThatArriveInPieces) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    InPieces<LaneStream> ends(seed);
    auto& [wires, from, to] = ends;
    std::vector<std::byte> window(48U << 10U);
    Mail mail(random, std::array<std::size_t, 8>{0, 1, 15, 100, 5000, 49'136, 49'137, 300'000}, 12);
    for (int turn = 0; turn < 100'000 && !mail.is_over(); ++turn) {
      if (mail.posted < mail.sent.size() && random() % 2 == 0) mail.post(from, mail.posted / 3);
      if (mail.wanted < mail.sent.size() && random() % 2 == 0) mail.want(to, mail.wanted, mail.wanted / 3);
      from.flush();
      wires.move();
      to.receive(window);
    }
    EXPECT_TRUE(mail.left_here.none() && mail.left_there.none());
    EXPECT_EQ(mail.got, mail.sent);
  }
}

class OneLane : public testing::Test {
 protected:
  OneLane() {
    Ends ends = joined();
    from.open(std::move(ends.one));
    to.open(std::move(ends.other));
  }
  void send(std::uint64_t call_tag, const std::vector<int>& values) {
    ++left.sends;
    from.post_send({{call_tag, values.size() * sizeof(int)}, reinterpret_cast<const std::byte*>(values.data()), &left});
    from.flush();
  }
  void want(std::uint64_t call_tag, std::vector<int>& values) {
    ++left.receives;
    to.post_receive({call_tag, reinterpret_cast<std::byte*>(values.data()), values.size() * sizeof(int), &left});
  }
  LaneStream from;
  LaneStream to;
  PendingCounts left;
  std::vector<std::byte> window = std::vector<std::byte>(1000);
};

TEST_F(OneLane, SaysOfAMessageWithAnotherLengthHowLongBothAre) {
  send(1, {1, 2, 3});
  std::vector<int> got(2);
  want(1, got);
  const auto outcome = to.receive(window);
  EXPECT_TRUE(outcome.has_other_length);
  EXPECT_EQ(outcome.length, 12U);
  EXPECT_EQ(outcome.wanted, 8U);
  EXPECT_EQ(got, std::vector<int>(2));
}

TEST_F(OneLane, KeepsMessagesOfOtherCalls) {
  send(2, {1, 2, 3});
  std::vector<int> other(3);
  want(1, other);
  to.receive(window);
  EXPECT_TRUE(to.is_stuck());
  EXPECT_EQ(other, std::vector<int>(3));
  to.drop_posted();
  std::vector<int> got(3);
  want(2, got);
  to.receive(window);
  EXPECT_FALSE(to.is_stuck());
  EXPECT_EQ(got, (std::vector<int>{1, 2, 3}));
}

TEST_F(OneLane, TakesNothingThatNobodyWants) {
  send(1, {1, 2, 3});
  std::vector<int> got(3);
  EXPECT_FALSE(to.receive(window).moved);
  want(1, got);
  to.receive(window);
  send(2, {4, 5, 6});
  EXPECT_FALSE(to.receive(window).moved);
  EXPECT_EQ(got, (std::vector<int>{1, 2, 3}));
}

TEST_F(OneLane, SeesTheEndAfterTheLastMessage) {
  send(1, {1, 2, 3});
  from.release();
  std::vector<int> got(3);
  want(1, got);
  EXPECT_FALSE(to.receive(window).is_over);
  EXPECT_EQ(got, (std::vector<int>{1, 2, 3}));
  want(2, got);
  EXPECT_TRUE(to.receive(window).is_over);
}

// ---- Words, and messages that match by their call tags.

TEST(ControlStreams, ReassembleFragmentedMessagesInAnyOrder) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    InPieces<ControlStream> ends(seed);
    auto& [wires, from, to] = ends;
    constexpr std::size_t count = 10;
    Mail mail(random, std::array<std::size_t, 6>{0, 1, 100, 65'536, 65'537, 200'000}, count);
    std::vector<Bytes> said;
    std::vector<Bytes> heard;
    std::array<std::size_t, count> order{};
    std::iota(order.begin(), order.end(), 0);
    std::ranges::shuffle(order, random);
    std::vector<Bytes> nothing;
    for (int turn = 0; turn < 100'000 && (!mail.is_over() || said.size() != heard.size()); ++turn) {
      if (mail.posted < count && random() % 2 == 0) mail.post(from, mail.posted);
      if (said.size() < count && random() % 2 == 0) {
        said.push_back(drawn(random, random() % 300));
        from.post_control(said.back());
      }
      if (mail.wanted < count && random() % 2 == 0) {
        const std::size_t which = order.at(mail.wanted);
        mail.want(to, which, which);
      }
      from.flush();
      from.receive(nothing);
      wires.move();
      to.receive(heard);
      to.flush();
    }
    for (int turn = 0; turn < 1000 && !mail.left_there.none(); ++turn) {
      from.flush();
      wires.move();
      to.receive(heard);
    }
    EXPECT_TRUE(mail.left_here.none() && mail.left_there.none()) << "seed " << seed;
    EXPECT_EQ(mail.got, mail.sent);
    EXPECT_EQ(heard, said);
    EXPECT_TRUE(nothing.empty());
  }
}

class ControlStreamTest : public testing::Test {
 protected:
  ControlStreamTest() {
    Ends ends = joined();
    to.open(std::move(ends.one));
    wire = std::move(ends.other);
  }
  struct Frame {
    std::uint32_t kind;
    std::uint32_t number;
    std::uint64_t call_tag;
    std::uint64_t bytes;
  };
  ControlProgress hears(const Frame& frame) {
    put(wire, std::as_bytes(std::span(&frame, 1)));
    return to.receive(words);
  }
  ControlStream to;
  Descriptor wire;
  std::vector<Bytes> words;
};

TEST_F(ControlStreamTest, RefusesAnUnknownFrame) { EXPECT_TRUE(hears({99, 0, 0, 0}).is_over); }

TEST_F(ControlStreamTest, RefusesAControlMessageBeyondTheLimit) { EXPECT_TRUE(hears({0, 0, 0, 1ULL << 62U}).is_over); }

TEST_F(ControlStreamTest, RefusesDataThatWasNotRequested) { EXPECT_TRUE(hears({4, 1, 0, 100}).is_over); }

TEST_F(ControlStreamTest, IgnoresAGrantWithoutAnOffer) { EXPECT_FALSE(hears({3, 9, 0, 0}).is_over); }

TEST_F(ControlStreamTest, ReportsBothLengthsOfAMismatch) {
  PendingCounts left{0, 1};
  std::array<std::byte, 8> into{};
  to.post_receive({5, into.data(), into.size(), &left});
  EXPECT_FALSE(hears({2, 1, 5, 100'000}).is_over);
  ASSERT_TRUE(to.length_mismatch());
  EXPECT_EQ(to.length_mismatch()->sent, 100'000U);
  EXPECT_EQ(to.length_mismatch()->wanted, 8U);
}

// 4 MiB, of which a part is on its way when one side gives up, and a control message behind them.
class DroppedMessage : public testing::Test {
 protected:
  DroppedMessage() {
    Ends ends = joined();
    from.open(std::move(ends.one));
    to.open(std::move(ends.other));
    from.post_send({{1, data.size()}, data.data(), &left_there});
    to.post_receive({1, got.data(), got.size(), &left_here});
    turn();
    from.flush();  // as much of it as goes
    to.receive(heard);
  }
  void turn() {
    from.flush();
    to.receive(heard);
    to.flush();
    from.receive(heard);
  }
  void expect_that_more_is_heard() {
    from.post_control(to_bytes("behind"));
    for (int i = 0; i < 1000 && heard.empty(); ++i) turn();
    ASSERT_EQ(heard.size(), 1U);
    EXPECT_EQ(to_string(heard[0]), "behind");
  }
  std::vector<std::byte> data = std::vector<std::byte>(4U << 20U, std::byte{1});
  std::vector<std::byte> got = std::vector<std::byte>(4U << 20U);
  PendingCounts left_there{1, 0};
  PendingCounts left_here{0, 1};
  std::vector<Bytes> heard;
  ControlStream from;
  ControlStream to;
};

TEST_F(DroppedMessage, IsSentToItsEndAndNotReadAnyMore) {
  from.drop_posted();
  data.assign(data.size(), std::byte{2});
  expect_that_more_is_heard();
  EXPECT_EQ(got, std::vector<std::byte>(data.size(), std::byte{1}));
  EXPECT_TRUE(left_here.none());
}

TEST_F(DroppedMessage, IsNotWrittenToAbandonedMemory) {
  to.drop_posted();
  got.assign(got.size(), std::byte{3});
  expect_that_more_is_heard();
  EXPECT_EQ(got, std::vector<std::byte>(data.size(), std::byte{3}));
}

}  // namespace
}  // namespace lockstep::tcp
