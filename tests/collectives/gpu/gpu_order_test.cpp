// SPDX-License-Identifier: Apache-2.0
// Threads that share a GPU and call in its streams: the GPU sees to the order, and the host goes on.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "collectives/node/events.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/gpu/stream_order.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {
namespace {

class GpuOrder : public WithGpus<2> {
 protected:
  void SetUp() override {
    if (!node_memory()) GTEST_SKIP() << lacks("needs members who share memory");
  }

  // Where a call that the host takes part in would wait for ever.
  static CommunicatorOptions impatient() { return {.timeout = std::chrono::seconds(20)}; }
};

TEST_F(GpuOrder, IsKeptByEveryCollectiveWithoutTheHost) {
  std::atomic<int> by_host = 0;
  gpus().before_copies([&](FakeGpus::Way way, std::size_t) { by_host += way == FakeGpus::Way::within ? 0 : 1; });
  with_members(
      3,
      [&](Communicator& world) {
        for (const Collective collective : moved_or_reduced) {
          for (int late = 0; late < 3; ++late) expect_order(world, gpus(), collective, late, 700);
        }
        for (const Collective collective : {Collective::all_reduce, Collective::reduce, Collective::reduce_scatter}) {
          expect_order(world, gpus(), collective, 1, 700, avg);
          expect_order(world, gpus(), collective, 0, 700, premul_sum(world.rank() - 3));
        }
        expect_order(world, gpus(), Collective::all_reduce, 0, 1);
      },
      impatient());
  EXPECT_EQ(by_host, 0);
}

TEST_F(GpuOrder, IsKeptByManyCallsAtOnce) {
  with_members(
      3, [&](Communicator& world) { expect_many(world, gpus(), 500); }, impatient());
  with_members(
      2, [&](Communicator& world) { expect_requests(world, gpus(), 500); }, impatient());
}

// What a call needs is there from the first ones on.
TEST_F(GpuOrder, TakesNoMoreEventsWithMoreCalls) {
  int enough = 0;
  for (int turn = 0; turn < 3; ++turn) {
    with_members(3, [&](Communicator& world) {
      const OwnStream stream(gpus());
      NumbersThere data(Numbers(2000, 1));
      for (int call = 0; call < 40; ++call) world.on(stream.get()).all_reduce(data, max);
      stream.wait();
    });
    if (turn == 0) enough = gpus().events();
    EXPECT_EQ(gpus().events_in_use(), 0U)
        << "also of a member that ends before all have put theirs behind its last one";
  }
  EXPECT_EQ(enough, 3 * 5);
  EXPECT_EQ(gpus().events(), enough);
}

TEST_F(GpuOrder, GivesBackEventsOfAStreamThatCannotBeMade) {
  node::GpuEvents events(gpus());
  FakeGpus::fail_streams(true);
  EXPECT_THROW(events.of(0), Error);
  FakeGpus::fail_streams(false);
  EXPECT_EQ(gpus().events_in_use(), 0U);
  const int made = gpus().events();
  EXPECT_NE(events.of(0).own, nullptr);
  EXPECT_EQ(gpus().events(), made) << "the same ones";
  EXPECT_EQ(gpus().events_in_use(), static_cast<std::size_t>(made));
  events.give_back();
}

// What a member has begun in a stream, and is over there, is nothing to wait for when another one fails, whatever the
// first one does now. The best of several counts, where the machine is slow.
TEST_F(GpuOrder, FinishedWorkDoesNotDelayFailures) {
  using Clock = std::chrono::steady_clock;
  constexpr auto wait = std::chrono::milliseconds(500);  // of the second in which something under way is waited for
  for (const bool leaves : {false, true}) {
    Clock::duration best = std::chrono::hours(1);
    for (int turn = 0; turn < 4 && best >= wait; ++turn) {
      with_members(2, [&](Communicator& world) {
        const OwnStream stream(gpus());
        NumbersThere data(Numbers(2000, 1));
        Gate gate;
        if (world.rank() == 0) gate.hold(stream);  // who launches for both, and has done its part before the GPU has
        world.on(stream.get()).all_reduce(data, sum);
        gate.open();
        stream.wait();
        std::vector<int> number(1);
        if (world.rank() == 1) {
          const auto begin = Clock::now();
          EXPECT_THROW(leaves ? world.barrier() : world.broadcast(number, 7), Error);
          best = std::min(best, Clock::now() - begin);
        } else if (!leaves) {
          EXPECT_THROW(world.recv(number, 1), Error);
        }
      });
    }
    EXPECT_LT(best, wait) << (leaves ? "it has left" : "it waits for a message");
  }
}

TEST_F(GpuOrder, HoldsFromOneGpuToTheOther) {
  with_members(3, [&](Communicator& world) {
    const OwnStream stream(gpus(), 0);
    NumbersThere there(1000, 1);
    NumbersThere in(1000, world.rank() % 2);
    NumbersThere all(3000, (world.rank() + 1) % 2);
    Gate gate;
    gate.hold(stream);
    stream.put([&] { there.copy_from(counting(1000, world.rank())); });
    world.on(stream.get()).all_reduce(there, sum);
    stream.put([&] { in.copy_from(there); });
    world.on(stream.get()).all_gather(in, all);
    Numbers found;
    stream.put([&] {
      in.copy_from(Numbers(1000, -1));
      found = on_host(all);
    });
    world.barrier();
    gate.open();
    stream.wait();
    EXPECT_EQ(found[2999], 3 * 999 + 3);
    EXPECT_EQ(found[1000], 3);
  });
}

// A plan, again and again.
TEST_F(GpuOrder, IsKeptByPlans) {
  with_members(2, [&](Communicator& world) {
    const OwnStream stream(gpus());
    NumbersThere data(Numbers(2000, 1));
    PreparedCall plan = world.on(stream.get()).plan_all_reduce(data, sum);
    Gate gate;
    gate.hold(stream);
    for (int turn = 0; turn < 5; ++turn) plan.run();
    Request last = plan.start();
    world.barrier();
    EXPECT_FALSE(last.test());
    gate.open();
    last.wait();
    EXPECT_EQ(on_host(data)[1999], 64);
    EXPECT_NE(plan.algorithm().find("in a stream"), std::string::npos) << plan.algorithm();
  });
}

// Where the host reduces or packs, it waits; then all is done when the call returns.
TEST_F(GpuOrder, IsKeptByTheHostWhereItHoldsData) {
  with_members(3, [&](Communicator& world) {
    const OwnStream stream(gpus());
    NumbersThere data(2000);
    for (const bool is_own : {true, false}) {
      stream.put([&] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        data.copy_from(Numbers(2000, 6 * world.rank()));
      });
      if (is_own)
        world.on(stream.get()).all_reduce(data, commutative([](int a, int b) { return std::max(a, b); }));
      else
        world.on(stream.get()).all_reduce(StridedBuffer<std::int32_t>{data.data(), 1000, 2}, sum);
      EXPECT_EQ(on_host(data)[998], is_own ? 12 : 18);
    }
  });
}

TEST_F(GpuOrder, EndsWithAFailedLaunch) {
  for (const bool copies : {false, true}) {
    std::atomic<int> refused = 0;
    with_members(3, [&](Communicator& world) {
      const OwnStream stream(gpus());
      NumbersThere data(Numbers(1000, 1));
      NumbersThere all(3000);
      const int who = copies ? 1 : 0;
      Request before = world.on(stream.get()).all_reduce_async(data, sum);
      world.barrier();
      FakeGpus::fail_copy_after(world.rank() == who ? 1 : -1);
      try {
        for (int turn = 0; turn < 3; ++turn) {
          if (copies)
            world.on(stream.get()).all_gather(data, all);
          else
            world.on(stream.get()).all_reduce(data, sum);
        }
        before.wait();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), world.rank() == who ? Code::device : Code::peer_failed) << error.what();
        EXPECT_PRED2(holds, error.what(), "fell off the bus");
        ++refused;
      }
      FakeGpus::fail_copy_after(-1);
      stream.wait();
    });
    EXPECT_EQ(refused, 3);
    EXPECT_EQ(gpus().events_in_use(), 0U);
  }
}

// Of a call that fails on its way a part may be in a stream: whoever hears of it may free its memory.
TEST_F(GpuOrder, ReleasesMemoryBeforeAFailureIsReported) {
  std::atomic<int> refused = 0;
  with_members(3, [&](Communicator& world) {
    const OwnStream stream(gpus());
    NumbersThere data(Numbers(1000, 1));
    NumbersThere all(3000);
    world.on(stream.get()).gather(data, all, 1);
    stream.wait();
    world.barrier();
    if (world.rank() == 1) {
      FakeGpus::fail_copy_after(2);  // its own block and another one's are there
      stream.put([] { std::this_thread::sleep_for(std::chrono::milliseconds(50)); });
    }
    try {
      world.on(stream.get()).gather(data, all, 1);
      world.barrier();
    } catch (const Error& error) {
      EXPECT_PRED2(holds, error.what(), "fell off the bus");
      ++refused;
    }
    FakeGpus::fail_copy_after(-1);
  });
  EXPECT_EQ(refused, 3);
}

TEST_F(GpuOrder, WaitsForMembersThatComeAndNamesThoseThatDoNot) {
  std::atomic<int> refused = 0;
  with_members(3,
               [&](Communicator& world) {
                 const OwnStream stream(gpus());
                 NumbersThere data(Numbers(1000, 1));
                 world.on(stream.get()).all_reduce(data, sum);
                 stream.wait();
                 if (world.rank() == 2) {
                   while (refused < 2) std::this_thread::sleep_for(std::chrono::milliseconds(1));
                   return;
                 }
                 try {
                   world.on(stream.get()).all_reduce(data, sum);
                 } catch (const Error& error) {
                   EXPECT_PRED2(holds, error.what(), "rank 2");
                   EXPECT_PRED2(holds, error.what(), "all_reduce of 1000 i32");
                 }
                 ++refused;
               },
               {.timeout = std::chrono::milliseconds(300)});
  EXPECT_EQ(refused, 2);
}

TEST_F(GpuOrder, IsChosenByAllMembersAlike) {
  std::atomic<int> refused = 0;
  with_members(2, [&](Communicator& world) {
    const OwnStream stream(gpus());
    NumbersThere data(Numbers(1000, 1));
    try {
      if (world.rank() == 0)
        world.on(stream.get()).all_reduce(data, sum);
      else
        world.all_reduce(data, sum);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::mismatch) << error.what();
      EXPECT_PRED2(holds, error.what(), "in a stream");
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
  with_members(2, [&](Communicator& world) {
    const OwnStream stream(gpus());
    NumbersThere data(Numbers(1000, 1));
    gpus().capture(stream.get());
    try {
      world.on(stream.get()).all_reduce(data, sum);
    } catch (const Error& error) {
      EXPECT_PRED2(holds, error.what(), "under capture");
      ++refused;
    }
    gpus().take_captured(stream.get());
  });
  EXPECT_EQ(refused, 4);
}

// What is under way when a communicator ends is done before.
TEST_F(GpuOrder, CommunicatorsEndAfterTheirWork) {
  const OwnStream first(gpus());
  const OwnStream second(gpus());
  const std::array<const OwnStream*, 2> streams = {&first, &second};
  const std::array<NumbersThere, 2> data = {NumbersThere(Numbers(2000, 1)), NumbersThere(Numbers(2000, 2))};
  with_members(2, [&](Communicator& world) {
    const auto me = static_cast<std::size_t>(world.rank());
    streams[me]->put([] { std::this_thread::sleep_for(std::chrono::milliseconds(3)); });
    world.on(streams[me]->get()).all_reduce(data[me], sum);
  });
  EXPECT_EQ(on_host(data[0]), Numbers(2000, 3));
  EXPECT_EQ(on_host(data[1]), Numbers(2000, 3));
}

}  // namespace
}  // namespace lockstep::test
