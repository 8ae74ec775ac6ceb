// SPDX-License-Identifier: Apache-2.0
// Messages between members that name each other: their order, tags, messages of nothing, and those that cannot be.
#include <numeric>

#include "tests/collectives/communicator/expect_usage.hpp"
#include "tests/collectives/communicator/members.hpp"

namespace lockstep::test {
namespace {

TEST(Order, MessagesOfTwoTagsMayComeInAnyOrder) {
  with_members(4, [](Communicator& world) {
    const int next = (world.rank() + 1) % 4;
    const int before = (world.rank() + 3) % 4;
    int got = -1;
    world.sendrecv(std::span(&next, 1), next, std::span(&got, 1), before);
    EXPECT_EQ(got, world.rank());
    // More than any number of lanes, sends first, in two tags.
    std::vector<Request> requests;
    std::vector<int> numbers(100);
    std::vector<int> arrived(100, -1);
    std::iota(numbers.begin(), numbers.end(), 0);
    for (std::size_t i = 0; i < 100; ++i)
      requests.push_back(world.send_async(std::span(numbers).subspan(i, 1), next, static_cast<int>(i % 2)));
    for (std::size_t i = 0; i < 100; ++i) {
      const std::size_t at = i < 50 ? 2 * i + 1 : 2 * (i - 50);  // the odd ones first
      requests.push_back(world.recv_async(std::span(arrived).subspan(at, 1), before, static_cast<int>(at % 2)));
    }
    wait_all(requests);
    EXPECT_EQ(arrived, numbers);
  });
}

// A blocking message takes a short way if it can. It must not overtake those that were begun before it, whether the
// sender is late or the receiver, whose ring is full then.
TEST(Order, BlockingMessagesDoNotOvertakeOthers) {
  for (const int late : {0, 1}) {
    with_members(2, [late](Communicator& world) {
      constexpr std::size_t begun = 50;
      std::vector<std::vector<int>> sent;
      std::vector<std::vector<int>> got;
      for (std::size_t i = 0; i < 2 * begun; ++i) {
        sent.emplace_back(i % 7 == 3 ? 40'000 : 1, static_cast<int>(i) + 1);
        got.emplace_back(sent.back().size());
      }
      world.barrier();
      if (world.rank() == late) std::this_thread::sleep_for(std::chrono::milliseconds(30));
      std::vector<Request> requests;
      for (std::size_t i = 0; i < begun; ++i)
        requests.push_back(world.rank() == 0 ? world.send_async(sent[i], 1) : world.recv_async(got[i], 0));
      for (std::size_t i = begun; i < 2 * begun; ++i)
        world.rank() == 0 ? world.send(sent[i], 1) : world.recv(got[i], 0);
      wait_all(requests);
      if (world.rank() == 1) {
        EXPECT_EQ(got, sent);
      }
    });
  }
}

TEST(Order, StridedMessagesAreRepeated) {
  with_members(2, [](Communicator& world) {
    const int peer = 1 - world.rank();
    std::vector<double> matrix(5 * 7);
    for (int lap = 0; lap < 200; ++lap) {
      for (std::size_t i = 0; i < 5; ++i) matrix[7 * i + 1] = lap + static_cast<double>(i) + 100 * world.rank();
      world.sendrecv(StridedBuffer<const double>{&matrix[1], 5, 7}, peer, StridedBuffer<double>{&matrix[6], 5, 7},
                     peer);
      for (std::size_t i = 0; i < 5; ++i)
        ASSERT_EQ(matrix[7 * i + 6], lap + static_cast<double>(i) + 100 * peer) << "lap " << lap;
    }
  });
}

TEST(Order, AMessageIntoRunsThatOverlapIsRefused) {
  with_members(2, [](Communicator& world) {
    std::vector<int> to(10);
    const int peer = 1 - world.rank();
    expect_usage([&] { world.recv(StridedBuffer<int>{to.data(), 3, 1, 2}, peer); }, "the runs of the output overlap");
  });
  with_members(2, [](Communicator& world) {
    std::vector<int> from(10, 7);
    std::vector<int> to(6);
    const int peer = 1 - world.rank();
    world.sendrecv(StridedBuffer<int>{from.data(), 3, 1, 2}, peer, to, peer);
    EXPECT_EQ(to, std::vector<int>(6, 7)) << "reading overlapping runs is well";
  });
}

TEST(Messages, OfNothingAreWaitedForAndMatched) {
  with_members(2, [](Communicator& world) {
    static std::atomic<bool> sent;
    if (world.rank() == 0) {
      sent = false;
      world.barrier();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      sent = true;
      world.send(std::span<const int>(), 1, 7);
      const int five = 5;
      world.send(std::span(&five, 1), 1, 7);
    } else {
      world.barrier();
      world.recv(std::span<int>(), 0, 7);
      EXPECT_TRUE(sent) << "a message of nothing came before it was sent";
      int got = 0;
      world.recv(std::span(&got, 1), 0, 7);
      EXPECT_EQ(got, 5);
    }
  });
}

TEST(Messages, OfNothingWhereSomethingIsExpectedIsAMismatch) {
  std::atomic<int> failed = 0;
  run_members(
      2,
      [&](Communicator& world) {
        try {
          std::vector<int> data(world.rank() == 0 ? 3 : 0);
          if (world.rank() == 0) world.send(data, 1);
          if (world.rank() == 1) world.recv(data, 0);
          world.barrier();
        } catch (const Error& error) {
          ++failed;
          EXPECT_EQ(error.code() == Code::mismatch || error.code() == Code::peer_failed, true) << error.what();
        }
      },
      {}, short_limits, Log(LogLevel::off));
  EXPECT_EQ(failed, 2);
}

TEST(Messages, ThatAreRefusedAreReportedToTheOtherSide) {
  std::atomic<int> told = 0;
  run_members(
      2,
      [&](Communicator& world) {
        int number = 0;
        const std::span<int> one(&number, 1);
        if (world.rank() == 0) {
          expect_usage([&] { world.sendrecv(one, 7, one, 1); }, "rank 7");
        } else {
          try {
            world.recv(one, 0);
          } catch (const Error& error) {
            ++told;
            EXPECT_NE(std::string_view(error.what()).find("rank 7"), std::string_view::npos) << error.what();
          }
        }
      },
      {}, short_limits, Log(LogLevel::off));
  EXPECT_EQ(told, 1);
}

TEST(Messages, TagsAreNotNegative) {
  run_members(
      1,
      [&](Communicator& world) {
        int number = 0;
        expect_usage([&] { world.send(std::span(&number, 1), 0, -3); }, "tag -3");
      },
      {}, short_limits, Log(LogLevel::off));
}

}  // namespace
}  // namespace lockstep::test
