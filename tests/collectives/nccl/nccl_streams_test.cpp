// SPDX-License-Identifier: Apache-2.0
// Calls in the order of a GPU's stream, plans that are repeated there, and what is captured.
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

#include "tests/collectives/gpu/own_gpus.hpp"

namespace lockstep::test {
namespace {

TEST_F(OwnGpus, RunInAStreamWithoutTheHost) {
  with_members(3, [&](Communicator& world) {
    const Stream stream(gpus(), world.rank());
    DeviceVector<int> mine(counting(count, 0), world.rank());
    std::promise<void> gate;
    // The data is there after the host has gone on, and is used after the call, without the host.
    stream.put([&, opened = gate.get_future().share()] {
      opened.wait();
      mine.copy_from(counting(count, world.rank()));
    });
    std::vector<int> after;
    world.on(stream.get()).all_reduce(mine, sum);
    stream.put([&] { after = on_host(mine); });
    EXPECT_NE(on_host(mine), sum_of(3));
    gate.set_value();
    stream.wait();
    EXPECT_EQ(after, sum_of(3));

    // A Request is done when the stream has come to it.
    std::promise<void> second;
    stream.put([opened = second.get_future().share()] { opened.wait(); });
    Request request = world.on(stream.get()).all_reduce_async(mine, sum);
    EXPECT_FALSE(request.test());
    second.set_value();
    request.wait();
    EXPECT_EQ(on_host(mine)[0], 9);
  });
  EXPECT_EQ(nccl().operations(), 6);
}

// What is composed uses memory of its own, one call after the other, whatever their streams.
TEST_F(OwnGpus, OrderComposedCallsOfSeveralStreams) {
  with_members(3, [&](Communicator& world) {
    const Stream first(gpus(), world.rank());
    const Stream second(gpus(), world.rank());
    std::promise<void> gate;
    DeviceVector<unsigned> one(std::vector<unsigned>(count, 1U << static_cast<unsigned>(world.rank())), world.rank());
    DeviceVector<unsigned> two(std::vector<unsigned>(count, 8U << static_cast<unsigned>(world.rank())), world.rank());
    if (world.rank() == 0) first.put([opened = gate.get_future().share()] { opened.wait(); });
    world.on(first.get()).all_reduce(one, bit_or);
    world.on(second.get()).all_reduce(two, bit_or);
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    gate.set_value();
    first.wait();
    second.wait();
    EXPECT_EQ(on_host(one), std::vector<unsigned>(count, 7));
    EXPECT_EQ(on_host(two), std::vector<unsigned>(count, 56));
  });
}

// Members ask each other where their data is in the first start.
TEST_F(OwnGpus, RepeatAPlanWithoutAsking) {
  with_members(2, [&](Communicator& world) {
    const Stream stream(gpus(), world.rank());
    DeviceVector<int> mine(counting(count, 1), world.rank());
    PreparedCall plan = world.on(stream.get()).plan_all_reduce(mine, sum);
    plan.run();
    EXPECT_EQ(plan.algorithm(), "nccl");
    EXPECT_NE(plan.why().find("a GPU of its own"), std::string::npos);
    expect_started_alone(world, plan);
    stream.wait();
    EXPECT_EQ(on_host(mine)[2], 12);
    DeviceVector<int> small(std::vector<int>{1, 2}, world.rank());
    PreparedCall of_little = world.plan_all_reduce(small, sum);
    of_little.run();
    EXPECT_EQ(of_little.algorithm(), "nccl");
    EXPECT_EQ(on_host(small), (std::vector<int>{2, 4}));
    std::vector<int> here(count);
    PreparedCall by_host = world.plan_all_reduce(here, sum);
    by_host.run();
    EXPECT_NE(by_host.algorithm(), "nccl");
  });
}

// Of plans and batches as well, and of what is composed.
TEST_F(OwnGpus, ComeAfterOrdinaryStreamsWhereNoneIsNamed) {
  with_members(3, [&](Communicator& world) {
    const int rank = world.rank();
    const OrdinaryStream stream(gpus(), rank);
    DeviceVector<int> one(count, rank);
    DeviceVector<int> other(count, rank);
    PreparedCall plan = world.plan_all_reduce(one, sum);
    Batch batch(world);
    batch.all_reduce(one, sum).all_reduce(other, sum);
    const auto follows = [&](int way) {
      if (way == 0) return world.all_reduce(one, sum);
      if (way == 1) return plan.run();
      if (way == 2) return plan.start().wait();
      if (way == 3) return batch.run();
      world.all_reduce(one, bit_xor);
      world.all_reduce(one, bit_xor);
    };
    for (int turn = 0; turn < 10; ++turn) {
      one.copy_from(std::vector<int>(count, -1));
      other.copy_from(std::vector<int>(count, -1));
      stream.put([&, turn] {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        one.copy_from(counting(count, rank + turn % 5));
        other.copy_from(std::vector<int>(count, 1));
      });
      follows(turn % 5);
      if (turn % 5 == 4) {
        std::vector<int> right(count);
        for (std::size_t i = 0; i < count; ++i) {
          const int first = static_cast<int>(i) + turn % 5;
          right[i] = first ^ (first + 1) ^ (first + 2);
        }
        EXPECT_EQ(on_host(one), right);  // of three equal ones once more, the same
        continue;
      }
      std::vector<int> right = sum_of(3);
      for (int& each : right) each += 3 * (turn % 5);
      EXPECT_EQ(on_host(one), right) << turn;
      if (turn % 5 == 3) {
        EXPECT_EQ(on_host(other), std::vector<int>(count, 3));
      }
    }
  });
  EXPECT_EQ(gpus().pinnings(), 0);
}

// What the program puts into its default stream, and ordinary ones, after a start does not wait for NCCL's part, in
// which other members are missing still.
TEST_F(OwnGpus, DoNotDelayLaterWorkOfTheProgram) {
  with_members(2, [&](Communicator& world) {
    const int rank = world.rank();
    const OrdinaryStream stream(gpus(), rank);
    DeviceVector<int> mine(std::vector<int>(count, 1), rank);
    PreparedCall plan = world.plan_all_reduce(mine, sum);
    plan.run();
    world.barrier();
    expect_started_alone(world, plan, [&] {
      std::atomic<int> ran = 0;
      gpus().put(rank, nullptr, [&] { ++ran; });
      stream.put([&] { ++ran; });
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (ran < 2 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      EXPECT_EQ(ran, 2);
    });
    EXPECT_EQ(on_host(mine), std::vector<int>(count, 4));
  });
}

// The default stream that is named is that of the GPU which has the data, whatever the thread's current one.
TEST_F(OwnGpus, KeepTheOrderOfTheDefaultStream) {
  with_members(3, [&](Communicator& world) {
    const int rank = world.rank();
    DeviceVector<int> mine(std::vector<int>(count, -1), rank);
    std::vector<int> after;
    gpus().put(rank, nullptr, [&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      mine.copy_from(counting(count, rank));
    });
    world.on(nullptr).all_reduce(mine, sum);
    gpus().put(rank, nullptr, [&] {
      after = on_host(mine);
      mine.copy_from(std::vector<int>(count, -1));
    });
    EXPECT_EQ(on_host(mine), std::vector<int>(count, -1));
    EXPECT_EQ(after, sum_of(3));
  });
}

// As in a CUDA graph: what was captured is done later, and again, with what is in the buffer then.
TEST_F(OwnGpus, AreReplayed) {
  with_members(3, [&](Communicator& world) {
    const Stream stream(gpus(), world.rank());
    DeviceVector<int> mine(100, world.rank());
    mine.copy_from(std::vector<int>(100, 1));
    PreparedCall plan = world.on(stream.get()).plan_all_reduce(mine, sum);
    plan.run();
    stream.wait();
    gpus().capture(stream.get());
    plan.run();
    world.on(stream.get()).all_reduce(mine, sum);
    const auto graph = gpus().take_captured(stream.get());
    EXPECT_EQ(on_host(mine)[99], 3);
    for (int turn = 0; turn < 3; ++turn) {
      for (const auto& each : graph) stream.put(each);
    }
    stream.wait();
    EXPECT_EQ(on_host(mine)[99], 3 * 9 * 9 * 9);
  });
}

}  // namespace
}  // namespace lockstep::test
