// SPDX-License-Identifier: Apache-2.0
// What goes wrong among members with a GPU each is named on all, and nobody waits in vain.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/collectives/gpu/own_gpus.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"

namespace lockstep::test {
namespace {

TEST_F(OwnGpus, RefuseDifferentCallsBeforeNccl) {
  std::atomic<int> refused = 0;
  with_members(2, [&](Communicator& world) {
    DeviceVector<int> mine(std::vector<int>(count, 1), world.rank());
    world.all_reduce(mine, sum);
    try {
      if (world.rank() == 0)
        world.all_reduce(mine, sum);
      else
        world.all_reduce(mine.span().first(count - 1), sum);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::mismatch) << error.what();
      EXPECT_TRUE(holds(error.what(), "all_reduce of 5000 i32") && holds(error.what(), "all_reduce of 4999 i32"))
          << error.what();
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(nccl().operations(), 2);
}

// All hear of it in the call itself, before NCCL is entered: whether it blocks nobody, or is planned.
TEST_F(OwnGpus, AreNotGivenAStreamOfAnotherGpu) {
  for (const bool is_first : {true, false}) {
    for (const int way : {0, 1, 2}) {
      std::atomic<int> refused = 0;
      with_members(3, [&](Communicator& world) {
        const Stream stream(gpus(), world.rank() == 1 ? 5 : world.rank());
        DeviceVector<int> mine(std::vector<int>(count, 1), world.rank());
        if (!is_first) world.all_reduce(mine, sum);
        const int before = nccl().operations();
        try {
          world.barrier();
          if (way == 0) world.on(stream.get()).all_reduce(mine, sum);
          if (way == 1) world.on(stream.get()).all_reduce_async(mine, sum).wait();
          if (way == 2) world.on(stream.get()).plan_all_reduce(mine, sum).run();
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), Code::usage) << error.what();
          EXPECT_TRUE(holds(error.what(), "rank 1 gave a stream of GPU 5 at ") &&
                      holds(error.what(), "nccl_faults_test.cpp") &&
                      holds(error.what(), " for data in the memory of GPU 1"))
              << error.what();
          EXPECT_TRUE(world.failed());
          ++refused;
        }
        EXPECT_EQ(nccl().operations(), before);
      });
      EXPECT_EQ(refused, 3);
    }
  }
}

// What NCCL lacks is composed in memory of the group's own, which grows with the calls.
TEST_F(OwnGpus, MissingScratchMemoryIsReportedToAll) {
  for (const int way : {0, 1, 2, 3}) {
    std::atomic<int> refused = 0;
    with_members(3, [&](Communicator& world) {
      const bool is_mine = world.rank() == 1;
      const Stream stream(gpus(), world.rank());
      DeviceVector<unsigned> mine(std::vector<unsigned>(count, 1), world.rank());
      world.all_reduce(mine.span().first(1100), bit_or);
      try {
        world.barrier();
        FakeGpus::fail_allocation_after(is_mine ? 0 : -1);
        if (way == 0) world.all_reduce(mine, bit_or);
        if (way == 1) world.on(stream.get()).all_reduce(mine, bit_or);
        if (way == 2) world.on(stream.get()).all_reduce_async(mine, bit_or).wait();
        if (way == 3) world.plan_all_reduce(mine, premul_sum(2)).run();
        world.barrier();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), is_mine ? Code::out_of_memory : Code::peer_failed) << error.what();
        EXPECT_PRED2(holds, error.what(), "on GPU 1: none left");
        EXPECT_TRUE(world.failed());
        ++refused;
      }
      FakeGpus::fail_allocation_after(-1);
    });
    EXPECT_EQ(refused, 3) << way;
  }
}

// What is composed works in memory that it shares with later calls; and the first call makes NCCL's group.
TEST_F(OwnGpus, AreNotCapturedWhereAGraphWouldBeWrong) {
  for (const bool is_first : {true, false}) {
    std::atomic<int> refused = 0;
    with_members(2, [&](Communicator& world) {
      const Stream stream(gpus(), world.rank());
      DeviceVector<unsigned> mine(std::vector<unsigned>(count, 1), world.rank());
      if (!is_first) world.all_reduce(mine, sum);
      gpus().capture(stream.get());
      try {
        world.on(stream.get()).all_reduce(mine, bit_or);
      } catch (const Error& error) {
        EXPECT_PRED2(holds, error.what(), "a stream under capture");
        EXPECT_PRED2(holds, error.what(), is_first ? "the first call of" : "all_reduce of 5000 u32, bit_or");
        ++refused;
      }
      gpus().take_captured(stream.get());
    });
    EXPECT_EQ(refused, 2);
  }
}

class FaultyNccl : public OwnGpus, public testing::WithParamInterface<int> {};

INSTANTIATE_TEST_SUITE_P(Calls, FaultyNccl, testing::Values(0, 1, 2, 3));

// Its name, joining, a call, and starting it.
TEST_P(FaultyNccl, IsNamedOnAll) {
  std::atomic<int> refused = 0;
  with_members(3, [&](Communicator& world) {
    const bool is_mine = world.rank() == 0;
    DeviceVector<int> mine(std::vector<int>(count, 1), world.rank());
    try {
      FakeNccl::fail_after(is_mine ? GetParam() : -1);
      for (int turn = 0; turn < 3; ++turn) world.all_reduce(mine, sum);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), is_mine ? Code::device : Code::peer_failed) << error.what();
      EXPECT_PRED2(holds, error.what(), "unhandled system error");
      EXPECT_TRUE(world.failed());
      ++refused;
    }
    FakeNccl::fail_after(-1);
  });
  EXPECT_EQ(refused, 3);
}

TEST_F(OwnGpus, ReportLostMembers) {
  std::atomic<int> refused = 0;
  with_members(3, [&](Communicator& world) {
    DeviceVector<int> mine(std::vector<int>(count, 1), world.rank());
    world.all_reduce(mine, sum);
    const Stream stream(gpus(), world.rank());
    std::promise<void> gate;
    if (world.rank() == 1) stream.put([opened = gate.get_future().share()] { opened.wait(); });
    try {  // a barrier, too, hears of it
      Request request = world.on(stream.get()).all_reduce_async(mine, sum);
      world.barrier();
      if (world.rank() == 1) nccl().break_all();
      request.wait();
    } catch (const Error& error) {
      EXPECT_PRED2(holds, error.what(), "remote process exited");
      ++refused;
    }
    // It is broken off at once, and not when the communicator ends.
    while (refused < 3) std::this_thread::yield();
    EXPECT_EQ(nccl().living(), 0);
    gate.set_value();
  });
  EXPECT_EQ(refused, 3);
}

// One never comes to it, because of what it put into its stream before.
TEST_F(OwnGpus, WaitForAStreamUpToTheLimit) {
  std::atomic<int> refused = 0;
  with_members(2, [&](Communicator& world) {
    DeviceVector<int> mine(std::vector<int>(count, 1), world.rank());
    world.all_reduce(mine, sum);
    const Stream stream(gpus(), world.rank());
    std::promise<void> gate;
    if (world.rank() == 1) stream.put([opened = gate.get_future().share()] { opened.wait(); });
    Request request = world.on(stream.get()).all_reduce_async(mine, sum);
    world.barrier();
    world.set_timeout(std::chrono::milliseconds(300));
    try {
      request.wait();
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Code::stall || error.code() == Code::peer_failed) << error.what();
      EXPECT_TRUE(holds(error.what(), "did not end within 0.3 s") && holds(error.what(), "nccl_faults_test.cpp"))
          << error.what();
      ++refused;
    }
    gate.set_value();
  });
  EXPECT_EQ(refused, 2);
}

// A call that the host takes part in waits for what is in the stream no longer than that.
TEST_F(OwnGpus, WaitForTheHostOfAStreamUpToTheLimit) {
  std::atomic<int> refused = 0;
  with_members(2, [&](Communicator& world) {
    std::vector<int> mine(count, 1);
    const Stream stream(gpus(), world.rank());
    std::promise<void> gate;
    if (world.rank() == 1) stream.put([opened = gate.get_future().share()] { opened.wait(); });
    world.set_timeout(std::chrono::milliseconds(500));
    try {
      world.on(stream.get()).scan(mine, sum);
    } catch (const Error& error) {
      EXPECT_TRUE(error.code() == Code::stall || error.code() == Code::peer_failed) << error.what();
      ++refused;
    }
    gate.set_value();
  });
  EXPECT_EQ(refused, 2);
}

// What is heard of in another call breaks off what GPUs do at once, before memory is freed that they use.
TEST_F(OwnGpus, EndWithAnyFailedCall) {
  std::atomic<int> refused = 0;
  with_members(2, [&](Communicator& world) {
    DeviceVector<int> mine(std::vector<int>(count, 1), world.rank());
    const Stream stream(gpus(), world.rank());
    PreparedCall plan = world.on(stream.get()).plan_all_reduce(mine, sum);
    try {
      plan.run();
      if (world.rank() == 0) {
        plan.run();
        world.barrier();
      } else {
        world.all_reduce(mine.span().first(2), mine.span().first(3), sum);
      }
    } catch (const Error&) {
      ++refused;
    }
    stream.wait();  // it would wait for ever
  });
  EXPECT_EQ(refused, 2);
}

// Breaking off may take for ever; nobody waits for that, and the memory that it uses stays.
TEST_F(OwnGpus, KeepTheirMemoryUntilTheyHaveLeft) {
  std::atomic<int> refused = 0;
  std::atomic<int> looked = 0;
  with_members(2, [&](Communicator& world) {
    DeviceVector<unsigned> mine(std::vector<unsigned>(count, 1), world.rank());
    nccl().hold(true);
    try {  // the one that fails may be heard of before the first call has ended
      world.all_reduce(mine, bit_or);
      if (world.rank() == 1) world.all_reduce(mine.span().first(2), mine.span().first(3), sum);
      world.barrier();
    } catch (const Error&) {
      ++refused;
    }
    while (refused < 2) std::this_thread::yield();
    EXPECT_EQ(gpus().living(), 4U);
    ++looked;
    while (looked < 2) std::this_thread::yield();
    nccl().hold(false);
  });
  for (int i = 0; i < 10'000 && gpus().living() > 0; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// The end of a communicator, too, has a limit: what is in a stream then is broken off.
TEST_F(OwnGpus, EndAtTheLimit) {
  with_members(2, [&](Communicator& world) {
    DeviceVector<int> mine(std::vector<int>(count, 1), world.rank());
    const Stream stream(gpus(), world.rank());
    {
      Communicator part = world.duplicate("part");
      PreparedCall plan = part.on(stream.get()).plan_all_reduce(mine, sum);
      plan.run();
      if (world.rank() == 0) plan.run();
      part.set_timeout(std::chrono::milliseconds(200));
    }
    stream.wait();
  });
}

// The others are not left with an operation that does not end.
TEST_F(OwnGpus, AreFreeWhenAMemberEndsEarly) {
  std::atomic<int> freed = 0;
  const auto body = [&](Communicator& world) {
    DeviceVector<int> mine(std::vector<int>(count, 1), world.rank());
    try {  // out of the first one, too: it may hear of the end there
      world.all_reduce(mine, sum);
      if (world.rank() == 0) throw std::runtime_error("enough");
      world.all_reduce(mine, sum);
    } catch (const Error&) {
      ++freed;
    }
  };
  EXPECT_THROW(run_members(3, body, {}, short_limits, Log(LogLevel::off)), std::runtime_error);
  EXPECT_EQ(freed, 2);
}

// An operation that was put into a stream and not waited for is done before the communicator ends.
TEST_F(OwnGpus, EndAfterTheWorkInTheirStreams) {
  with_members(2, [&](Communicator& world) {
    const Stream stream(gpus(), world.rank());
    DeviceVector<int> mine(std::vector<int>(count, 1), world.rank());
    {
      Communicator part = world.duplicate("part");
      stream.put([] { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
      part.on(stream.get()).all_reduce(mine, sum);
    }
    EXPECT_EQ(on_host(mine), std::vector<int>(count, 2));
  });
}

}  // namespace
}  // namespace lockstep::test
