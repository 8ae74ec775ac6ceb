// SPDX-License-Identifier: Apache-2.0
// Communicators that return the memory of slots and pages while another member is late. many_communicators_mpi_test.cpp
// measures the memory.
#include <gtest/gtest.h>

#include <thread>

#include "collectives/engine/idle_memory.hpp"
#include "tests/collectives/communicator/members.hpp"

namespace lockstep::test {
namespace {

// Members that are late still find the data of the others.
TEST(IdleMemory, StaysWhileAnotherMemberReads) {
  run_members(3, [&](Communicator& world) {
    Communicator first = world.duplicate();
    Communicator second = world.duplicate();
    constexpr std::size_t count = 32 * 1024;
    std::vector<int> mine(count);
    std::vector<int> all(3 * count);
    for (int i = 0; i < 12; ++i) {
      for (Communicator* const each : {&first, &second}) {
        std::ranges::fill(mine, i + world.rank());
        if (i % 3 == world.rank()) std::this_thread::sleep_for(IdleMemory::longest + std::chrono::milliseconds(10));
        each->broadcast(mine, 0);
        EXPECT_EQ(mine, std::vector(count, i));
        each->all_gather(mine, all);
        EXPECT_EQ(all, std::vector(3 * count, i));
      }
    }
  });
}

// The root of the small ones is ahead of the others by many pages.
TEST(IdleMemory, StaysWhileAnotherMemberIsManyPagesBehind) {
  run_members(3, [&](Communicator& world) {
    Communicator first = world.duplicate();
    Communicator second = world.duplicate();
    std::vector<int> some(128);
    std::vector<int> more(32 * 1024);
    for (int lap = 0; lap < 4; ++lap) {
      for (int i = 0; i < 150; ++i) {
        if (world.rank() == 1 && i == 70) std::this_thread::sleep_for(2 * IdleMemory::longest);
        std::ranges::fill(some, world.rank() == 0 ? lap * 1000 + i : -1);
        first.broadcast(some, 0);
        ASSERT_EQ(some, std::vector(some.size(), lap * 1000 + i));
      }
      for (int i = 0; i < 3; ++i) {
        if (world.rank() == 0) std::this_thread::sleep_for(IdleMemory::longest);
        std::ranges::fill(more, world.rank() == 0 ? i : -1);
        second.broadcast(more, 0);
        ASSERT_EQ(more, std::vector(more.size(), i));
      }
    }
  });
}

}  // namespace
}  // namespace lockstep::test
