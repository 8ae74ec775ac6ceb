// SPDX-License-Identifier: Apache-2.0
// Two ends of the rings between two members, in one thread: whatever is sent and taken in whatever order, each message
// arrives as it was sent, and none is written over.
#include "collectives/node/message_ring.hpp"

#include <gtest/gtest.h>

#include <array>
#include <deque>
#include <memory>
#include <random>
#include <vector>

namespace lockstep {
namespace {

using node::MessageCell;
using node::MessageKind;
using node::MessageMemory;

// Sends to the other member, and takes what that one sends.
struct End {
  End(const node::RoomMemory& room, int here, int there, std::size_t slow)
      : sender(MessageMemory(room, here, there), taken, strategy, slow),
        receiver(MessageMemory(room, there, here), taken) {}

  node::TakenCells taken;
  node::WriteStrategy strategy;
  node::MessageSender sender;
  node::MessageReceiver receiver;
  std::deque<std::vector<std::byte>> expected;  // that the other member has sent
};

std::vector<std::byte> message(std::size_t bytes, unsigned seed) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(seed + i * 31 + i / 256);
  return data;
}

struct Room {
  explicit Room(int members)
      : memory(static_cast<std::byte*>(std::aligned_alloc(4096, node::RoomMemory::bytes_for(members))),
               [](std::byte* at) { std::free(at); }),
        ends{End{node::RoomMemory(cleared(members), 0, members), 0, 1, node::never},
             End{node::RoomMemory(memory, 1, members), 1, 0, 0}} {}
  std::shared_ptr<std::byte> cleared(int members) {
    std::fill_n(memory.get(), node::RoomMemory::bytes_for(members), std::byte{0});
    return memory;
  }

  // Returns false if there is no space now.
  bool send(std::size_t from, std::size_t bytes, unsigned seed) {
    std::vector<std::byte> data = message(bytes, seed);
    if (!ends[from].sender.copy(seed, data.data(), bytes)) return false;
    ends[1 - from].expected.push_back(std::move(data));
    return true;
  }
  // Returns false if nothing has come.
  bool take(std::size_t to) {
    End& end = ends[to];
    const MessageCell* const cell = end.receiver.next();
    EXPECT_EQ(cell == nullptr, end.expected.empty());
    if (cell == nullptr || end.expected.empty()) return false;
    EXPECT_EQ(cell->bytes, end.expected.front().size());
    std::vector<std::byte> data(cell->bytes);
    end.receiver.take(*cell, data.data());
    EXPECT_TRUE(data == end.expected.front()) << "of " << data.size() << " bytes";
    end.expected.pop_front();
    return true;
  }

  std::shared_ptr<std::byte> memory;
  std::array<End, 2> ends;
};

TEST(MessageRing, DrawnMessagesArriveAsTheyWereSent) {
  for (const int members : {2, 40, 70}) {  // 70 members have fewer cells, and a ring of 16 KiB
    Room room(members);
    const std::size_t largest = MessageMemory(node::RoomMemory(room.memory, 0, members), 0, 1).most_at_once();
    std::mt19937 draw(static_cast<unsigned>(members));
    int refused = 0;
    for (unsigned i = 0; i < 20000 && !testing::Test::HasFailure(); ++i) {
      const std::size_t member = draw() % 2;
      const bool fills = i / 500 % 2 == 0;  // else what comes is taken soon
      const std::size_t below = std::array<std::size_t, 4>{100, 3000, 9000, largest + 1}[draw() % 4];
      if (draw() % 3 == 0 || (!fills && !room.ends[member].expected.empty()))
        room.take(member);
      else
        refused += room.send(member, draw() % std::min(below, largest + 1), i) ? 0 : 1;
    }
    EXPECT_GT(refused, 100) << "the rings were full now and then";
    for (const std::size_t member : {std::size_t{0}, std::size_t{1}}) {
      while (room.take(member)) continue;
      EXPECT_TRUE(room.ends[member].expected.empty());
    }
  }
}

// Returns where the data of a message of 4 KiB lie in the memory of both rings.
std::uint64_t place_of_next(Room& room, std::size_t from) {
  EXPECT_TRUE(room.send(from, 4096, 7));
  return room.ends[1 - from].receiver.next()->place;
}

TEST(MessageRing, MembersThatSendInTurnsStayInTheShortRing) {
  Room room(2);
  const MessageMemory memory(node::RoomMemory(room.memory, 0, 2), 0, 1);
  for (int i = 0; i < 100; ++i) {  // both send, and then both take
    for (const std::size_t from : {std::size_t{0}, std::size_t{1}})
      EXPECT_GE(place_of_next(room, from), memory.ring_bytes()) << i;
    for (const std::size_t to : {std::size_t{0}, std::size_t{1}}) EXPECT_TRUE(room.take(to));
  }
  std::size_t in_long = 0;
  for (int i = 0; i < 100; ++i) {  // one sends only, and does not fetch the other's count before its cells are full
    if (place_of_next(room, 0) < memory.ring_bytes()) ++in_long;
    EXPECT_TRUE(room.take(1));
  }
  EXPECT_GT(in_long, 80U);
}

// The first pass takes longer, since the system gives the ring its pages.
TEST(MessageRing, WritesOfTheFirstPassAreNotJudged) {
  Room room(2);
  End& end = room.ends[0];
  const MessageMemory memory(node::RoomMemory(room.memory, 0, 2), 0, 1);
  constexpr std::size_t slow = 1;  // picoseconds a byte: every timed write is slow
  node::MessageSender sender(memory, end.taken, end.strategy, slow);
  const std::vector<std::byte> data(memory.part_bytes());
  std::vector<std::byte> to(data.size());
  const auto pass_one = [&] {
    EXPECT_TRUE(sender.copy(7, data.data(), data.size()));
    room.ends[1].receiver.take(*room.ends[1].receiver.next(), to.data());
  };
  for (std::size_t filled = 0; filled < memory.ring_bytes(); filled += data.size()) pass_one();
  EXPECT_EQ(end.strategy.mean(), 0);
  for (int i = 0; i < 3; ++i) pass_one();
  EXPECT_TRUE(end.strategy.bypasses_caches(data.size(), slow));
}

}  // namespace
}  // namespace lockstep
