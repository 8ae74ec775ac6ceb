// SPDX-License-Identifier: Apache-2.0
// Communicators that return the memory of their slots while another member is late. many_communicators_mpi_test.cpp
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

}  // namespace
}  // namespace lockstep::test
