// SPDX-License-Identifier: Apache-2.0
// What only real processes show: the world of a session, many messages at once, sub-communicators, mistakes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <numeric>
#include <thread>

#include "collectives/communicator/batch.hpp"
#include "collectives/communicator/cartesian.hpp"
#include "collectives/communicator/communicator_core.hpp"
#include "collectives/communicator/communicator_member.hpp"
#include "collectives/node/address_form.hpp"
#include "tests/collectives/communicator/all_ranks.hpp"
#include "tests/support/holds.hpp"

namespace lockstep::test {
namespace {

TEST(CommunicatorMpi, TheWorldOfASession) {
  Communicator& all = session().world();
  EXPECT_EQ(&all, &session().world());
  EXPECT_EQ(all.size(), session().size());
  EXPECT_EQ(all.rank(), session().rank());
  EXPECT_EQ(all.all_reduce(all.rank(), sum), all.size() * (all.size() - 1) / 2);
}

TEST(CommunicatorMpi, ShrinksUnlessMessagesGoByMpiAndSaysSoThere) {
  Communicator all = all_ranks();
  const char* const transport = std::getenv("LOCKSTEP_TRANSPORT");
  const bool by_mpi = !session().backend() && (transport == nullptr || std::string_view(transport) != "tcp");
  if (session().topology().node_count() == 1 && by_mpi) {
    try {
      all.shrink();
      ADD_FAILURE() << "it has shrunk";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::usage) << error.what();
      EXPECT_NE(std::string_view(error.what()).find("LOCKSTEP_TRANSPORT=tcp"), std::string_view::npos) << error.what();
    }
    return;
  }
  Communicator same = all.shrink("all are left");  // nobody is gone
  EXPECT_EQ(same.size(), all.size());
  EXPECT_EQ(same.rank(), all.rank());
  EXPECT_EQ(same.all_reduce(same.rank(), sum), all.size() * (all.size() - 1) / 2);
  auto half = same.split(same.rank() % 2);
  EXPECT_EQ(half->all_reduce(1, sum), half->size());
}

TEST(CommunicatorMpi, MoreMessagesThanLanesInTwoTags) {
  Communicator all = all_ranks();
  const int next = (all.rank() + 1) % all.size();
  const int before = (all.rank() + all.size() - 1) % all.size();
  std::vector<int> numbers(100);
  std::vector<int> arrived(100, -1);
  std::iota(numbers.begin(), numbers.end(), all.rank() * 1000);
  std::vector<Request> requests;
  for (std::size_t i = 0; i < 100; ++i)
    requests.push_back(all.send_async(std::span(numbers).subspan(i, 1), next, static_cast<int>(i % 2)));
  for (std::size_t i = 0; i < 100; ++i) {
    const std::size_t at = i < 50 ? 2 * i + 1 : 2 * (i - 50);  // the odd ones first
    requests.push_back(all.recv_async(std::span(arrived).subspan(at, 1), before, static_cast<int>(at % 2)));
  }
  std::ranges::reverse(requests);
  wait_all(requests);
  std::iota(numbers.begin(), numbers.end(), before * 1000);
  EXPECT_EQ(arrived, numbers);
}

// The calls go around all lanes, whose tags must not be those of a message that waits.
TEST(CommunicatorMpi, CallsNeverMeetAMessage) {
  Communicator all = all_ranks();
  if (all.size() < 2) return;
  std::vector<int> got(64, -1);
  std::vector<Request> requests;
  if (all.rank() == 0) {
    for (int tag = 0; tag < 64; ++tag)
      requests.push_back(all.recv_async(std::span(got).subspan(static_cast<std::size_t>(tag), 1), 1, tag));
  }
  for (int turn = 0; turn < 100; ++turn) ASSERT_EQ(all.all_reduce(1, sum), all.size());
  if (all.rank() == 1) {
    for (int tag = 63; tag >= 0; --tag) all.send(std::span(&tag, 1), 0, tag);
  }
  wait_all(requests);
  if (all.rank() != 0) return;
  std::vector<int> right(64);
  std::iota(right.begin(), right.end(), 0);
  EXPECT_EQ(got, right);
}

TEST(CommunicatorMpi, RepeatedCallsMoveNewData) {
  Communicator all = all_ranks();
  const int me = all.rank();
  const int last = all.size() - 1;
  const auto n = static_cast<std::size_t>(all.size());
  for (const std::size_t count : {std::size_t{1}, std::size_t{100}, std::size_t{3000}}) {
    for (int turn = 0; turn < 4; ++turn) {
      const auto block = [&](int from, int to) {
        std::vector<int> numbers(count);
        std::iota(numbers.begin(), numbers.end(), turn * 100000 + from * 10000 + to * 1000);
        return numbers;
      };
      const auto blocks = [&](const auto& of_member) {
        std::vector<int> numbers;
        for (int i = 0; i < all.size(); ++i) std::ranges::copy(of_member(i), std::back_inserter(numbers));
        return numbers;
      };
      const std::vector<int> for_each = blocks([&](int to) { return block(me, to); });
      const std::vector<int> of_each = blocks([&](int from) { return block(from, 0); });
      std::vector<int> got(n * count);
      std::vector<int> part(count);
      all.all_to_all(std::span<const int>(for_each), std::span(got));
      ASSERT_EQ(got, blocks([&](int from) { return block(from, me); })) << count << " numbers, turn " << turn;
      all.all_gather(std::span<const int>(for_each).first(count), std::span(got));
      ASSERT_EQ(got, of_each) << count << " numbers, turn " << turn;
      got.assign(got.size(), 0);
      all.gather(std::span<const int>(for_each).first(count), std::span(got), last);
      ASSERT_EQ(got, me == last ? of_each : std::vector<int>(got.size())) << count << " numbers, turn " << turn;
      all.scatter(std::span<const int>(for_each), std::span(part), last);
      ASSERT_EQ(part, block(last, me)) << count << " numbers, turn " << turn;
      part = block(me, 0);
      all.broadcast(std::span(part), last);
      ASSERT_EQ(part, block(last, 0)) << count << " numbers, turn " << turn;
      all.reduce_scatter(std::span<const int>(for_each), std::span(part), max);
      ASSERT_EQ(part, block(last, me)) << count << " numbers, turn " << turn;
      all.exscan(std::span<const int>(block(me, 0)), std::span(part), max);
      ASSERT_TRUE(me == 0 || part == block(me - 1, 0)) << count << " numbers, turn " << turn;
    }
  }
}

// Some blocks lie in lines and others in slots, some are empty, and every other time a member comes late.
TEST(CommunicatorMpi, RepeatedUnequalCallsTakeEachBlockAsItComes) {
  Communicator all = all_ranks();
  const int me = all.rank();
  const int last = all.size() - 1;
  const auto count = [](int from, int to) { return static_cast<std::size_t>(from == 0 ? 5000 + to : (from + to) % 3); };
  const auto counts_of = [&](const auto& of_member) {
    std::vector<std::size_t> counts;
    for (int i = 0; i < all.size(); ++i) counts.push_back(of_member(i));
    return counts;
  };
  const std::vector<std::size_t> sent = counts_of([&](int to) { return count(me, to); });
  const std::vector<std::size_t> received = counts_of([&](int from) { return count(from, me); });
  const std::vector<std::size_t> gathered = counts_of([&](int from) { return count(from, 1); });
  const std::vector<std::size_t> scattered = counts_of([&](int to) { return count(last, to); });
  for (int turn = 0; turn < 6; ++turn) {
    const auto append = [&](std::vector<int>& to, int from, int target, std::size_t number) {
      for (std::size_t i = 0; i < number; ++i)
        to.push_back(turn * 100000 + from * 10000 + target * 1000 + static_cast<int>(i % 1000));
    };
    const auto come = [&](int late) {
      if (turn % 2 == 1 && me == late % all.size()) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    };
    std::vector<int> mine;
    std::vector<int> right;
    for (int i = 0; i < all.size(); ++i) append(mine, me, i, count(me, i));
    for (int i = 0; i < all.size(); ++i) append(right, i, me, count(i, me));
    std::vector<int> got(right.size());
    come(turn);
    all.all_to_all_v(mine, sent, got, received);
    ASSERT_EQ(got, right) << "all_to_all_v, turn " << turn;
    mine.clear();
    right.clear();
    append(mine, me, 1, count(me, 1));
    for (int i = 0; i < all.size(); ++i) append(right, i, 1, count(i, 1));
    got.assign(right.size(), 0);
    come(turn + 1);
    all.gather_v(mine, got, gathered, last);
    ASSERT_EQ(got, me == last ? right : std::vector<int>(right.size())) << "gather_v, turn " << turn;
    mine.clear();
    right.clear();
    for (int i = 0; i < all.size(); ++i) append(mine, last, i, count(last, i));
    append(right, last, me, count(last, me));
    got.assign(right.size(), 0);
    come(last);
    all.scatter_v(mine, got, scattered, last);
    ASSERT_EQ(got, right) << "scatter_v, turn " << turn;
  }
}

// The root of a gather_v comes late, and the source of a scatter_v is ahead, by more steps than the ring has.
TEST(CommunicatorMpi, RepeatedUnequalCallsWaitForAFullRing) {
  Communicator all = all_ranks();
  const auto n = static_cast<std::size_t>(all.size());
  const std::vector<std::size_t> counts(n, 1);
  std::vector<int> numbers(n);
  int number = 0;
  for (int turn = 0; turn < 900; ++turn) {
    const bool is_pause = turn % 300 == 150;
    if (is_pause && all.rank() == 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    number = turn + all.rank();
    all.gather_v(std::span(&number, 1), numbers, counts, 0);
    for (std::size_t i = 0; i < n && all.rank() == 0; ++i) ASSERT_EQ(numbers[i], turn + static_cast<int>(i));
  }
  for (int turn = 0; turn < 900; ++turn) {
    const bool is_pause = turn % 300 == 150;
    if (is_pause && all.rank() != 0) std::this_thread::sleep_for(std::chrono::milliseconds(3));
    std::iota(numbers.begin(), numbers.end(), turn);
    all.scatter_v(numbers, std::span(&number, 1), counts, 0);
    ASSERT_EQ(number, turn + all.rank());
  }
}

// The root's data are in place every other time, so it begins calls anew that the others repeat. Large blocks go in
// another way than small ones, and after an allocation calls first ask if buffers can be reached.
TEST(CommunicatorMpi, MembersThatBeginACallAnewMeetThoseThatRepeatIt) {
  Communicator all = all_ranks();
  const SymmetricBuffer<int> reachable = all.allocate<int>(16);
  for (const std::size_t count : {std::size_t{1000}, std::size_t{64} << 10U}) {
    std::vector<int> mine(count, all.rank());
    std::vector<int> right;
    for (int rank = 0; rank < all.size(); ++rank) right.insert(right.end(), count, rank);
    for (int turn = 0; turn < 6; ++turn) {
      std::vector<int> got(all.rank() == 0 ? right.size() : 0, -1);
      const bool in_place = all.rank() == 0 && turn % 2 == 1;
      if (in_place) std::ranges::copy(mine, got.begin());
      all.gather(in_place ? std::span<const int>(got).first(count) : std::span<const int>(mine), std::span(got), 0);
      ASSERT_TRUE(all.rank() != 0 || got == right) << count << " numbers, turn " << turn;
      std::vector<int> back(count, -1);
      all.scatter(std::span<const int>(got), in_place ? std::span(got).first(count) : std::span(back), 0);
      ASSERT_TRUE(in_place || back == mine) << count << " numbers, turn " << turn;
    }
  }
}

// After a few calls that found nothing, those of the kind ask rarely, and find symmetric memory again when they have
// it.
TEST(CommunicatorMpi, OrdinaryBuffersBesideSymmetricMemoryAreRarelyAskedFor) {
  Communicator all = all_ranks();
  node::Room* const room = all.core()->member().engine().platform().room();
  if (room == nullptr || all.size() == 1 || node::reaches_gpus(*room)) return;
  constexpr std::size_t count = 2048;
  std::vector<int> mine(count, all.rank() + 1);
  std::vector<int> got(count);
  const std::vector<int> right(count, all.size() * (all.size() + 1) / 2);
  // Returns the steps of so many calls.
  const auto steps_of = [&](std::span<const int> from, std::span<int> to, int calls) {
    const node::StepNumber before = room->ring().last();
    for (int i = 0; i < calls; ++i) {
      std::ranges::fill(to, 0);
      all.all_reduce(from, to, sum);
      EXPECT_TRUE(std::ranges::equal(to, right)) << i;
    }
    return room->ring().last() - before;
  };
  const auto without = steps_of(mine, got, 200);
  const SymmetricBuffer<int> in = all.allocate<int>(count);
  const SymmetricBuffer<int> out = all.allocate<int>(count);
  std::ranges::copy(mine, in.begin());
  const auto beside = steps_of(mine, got, 200);
  EXPECT_GT(beside, without) << "nothing asked";
  EXPECT_LT(beside, without + 20);
  const std::uint64_t copied = room->copied_bytes();
  steps_of(mine, got, 10);
  const std::uint64_t of_ordinary = room->copied_bytes() - copied;
  steps_of(in, out, 1000);  // one in 64 asks
  const std::uint64_t then = room->copied_bytes();
  steps_of(in, out, 10);
  EXPECT_LT(room->copied_bytes() - then, of_ordinary) << "symmetric memory was not found again";
}

TEST(CommunicatorMpi, AGridDoesNotMeetMessages) {
  Communicator all = all_ranks();
  if (all.size() != 2) return;
  CartesianGrid grid(all, {2}, {false});
  const int other = 1 - all.rank();
  std::vector<int> message = {100 + all.rank(), 200 + all.rank()};
  std::vector<int> got(2);
  std::vector<Request> requests;
  for (int tag = 0; tag < 2; ++tag)
    requests.push_back(all.send_async(std::span(message).subspan(static_cast<std::size_t>(tag), 1), other, tag));
  int mine = all.rank();
  int theirs = -1;
  const Face<int> face{0, all.rank() == 0 ? GridSide::upper : GridSide::lower, {&mine, 1, 1, 1}, {&theirs, 1, 1, 1}};
  grid.exchange(std::span(&face, 1));
  for (int tag = 0; tag < 2; ++tag) all.recv(std::span(got).subspan(static_cast<std::size_t>(tag), 1), other, tag);
  wait_all(requests);
  EXPECT_EQ(theirs, other);
  EXPECT_EQ(got, (std::vector<int>{100 + other, 200 + other}));
}

TEST(CommunicatorMpi, ATagThatIsTooLargeIsRefused) {
  Communicator all = all_ranks();
  int number = 0;
  try {
    all.send(std::span(&number, 1), all.rank(), std::numeric_limits<int>::max());
    ADD_FAILURE() << "it was taken";
  } catch (const Error& error) {
    EXPECT_NE(std::string_view(error.what()).find("tags are 0 to"), std::string_view::npos) << error.what();
  }
}

float add(float a, float b) { return a + b; }
float larger(float a, float b) { return a > b ? a : b; }

class CommunicatorMpiTwo : public NeedsRanks<2> {};

// Code lies elsewhere in every process.
TEST_F(CommunicatorMpiTwo, AnotherFunctionIsAMismatch) {
  Communicator all = all_ranks();
  std::vector<float> data(100, 1.F);
  all.all_reduce(data, ordered(&add));
  EXPECT_EQ(data[99], static_cast<float>(all.size()));
  all.all_reduce(data, commutative(&std::fmaxf));
  EXPECT_EQ(data[99], static_cast<float>(all.size())) << "of another library";
  try {
    all.all_reduce(data, ordered(all.rank() == 1 ? &larger : &add));
    all.barrier();
    ADD_FAILURE() << "nothing was noticed";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::mismatch) << error.what();
    EXPECT_NE(std::string_view(error.what()).find("functions differ"), std::string_view::npos) << error.what();
  }
}

// Where MPI takes the message at once its send is over; elsewhere the send fails with its communicator.
TEST_F(CommunicatorMpiTwo, UnreceivedMessageDoesNotReachNextCommunicator) {
  Communicator all = all_ranks({.node_memory = false});
  for (int lap = 0; lap < 3; ++lap) {
    try {
      Communicator first = all.duplicate();
      if (all.rank() == 0) {
        const int old = 100 + lap;
        Request sent = first.send_async(std::span(&old, 1), 1, 5);
        for (int i = 0; i < 1000 && !sent.test(); ++i) std::this_thread::sleep_for(std::chrono::microseconds(10));
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_failed) << error.what();  // rank 1 has left before it received
    }
    all.barrier();
    Communicator second = all.duplicate();
    if (all.rank() == 0) second.send(std::span(&lap, 1), 1, 5);
    if (all.rank() == 1) {
      int got = -1;
      second.recv(std::span(&got, 1), 0, 5);
      EXPECT_EQ(got, lap);
    }
    all.barrier();
  }
}

TEST_F(CommunicatorMpiTwo, NamesMissingMembers) {
  if (world().rank() == world().size() - 1) {
    { Communicator all = all_ranks(); }  // leaves at once
    world().barrier("end");
    return;
  }
  {
    Communicator all = all_ranks();
    EXPECT_THROW(
        try { all.barrier(); } catch (const Error& error) {
          EXPECT_PRED2(holds, error.what(), text("rank ", world().size() - 1));
          throw;
        },
        Error);
  }
  world().barrier("end");
}

}  // namespace
}  // namespace lockstep::test
