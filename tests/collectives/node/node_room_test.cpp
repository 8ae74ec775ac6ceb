// SPDX-License-Identifier: Apache-2.0
// Memory of a node: made, opened, allocated, freed, read in another process, and slept at.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <utility>

#include "collectives/node/process_memory_reader.hpp"
#include "collectives/node/symmetric.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/node/node_case.hpp"
#include "tests/support/lacks.hpp"
#include "topology/base/shared_memory.hpp"

namespace lockstep {
namespace {

using test::rooms;

TEST(ProcessMemoryReader, AProcessIsKnownByItsLandmarkAndNotByItsNumber) {
  node::ProcessIdentity here = node::process_identity();
  EXPECT_TRUE(node::is_readable(here));
  here.token += 1;
  EXPECT_FALSE(node::is_readable(here)) << "somebody else has that number";
  here = node::process_identity();
  here.address = 64;
  EXPECT_FALSE(node::is_readable(here));
  here = node::process_identity();
  here.process = 1 << 30;
  EXPECT_FALSE(node::is_readable(here));
}

// Returns the pages in which the kernel keeps the time for this process. It shares them with no other process.
const void* pages_of_the_kernel() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process
    if (line.ends_with("[vvar]")) return reinterpret_cast<const void*>(std::stoull(line, nullptr, 16));
  }
  return nullptr;
}

TEST(ProcessMemoryReader, MemoryThatOthersMayNotReadIsKnownBeforehand) {
  node::ProcessMemoryReader reader({::getpid(), ::getpid()});
  const std::vector<int> plain(100'000);
  const std::size_t bytes = plain.size() * sizeof(int);
  EXPECT_TRUE(reader.could_be_read(plain.data(), bytes));
  EXPECT_TRUE(reader.could_be_read(plain.data(), bytes)) << "nor asked again";
  EXPECT_TRUE(reader.could_be_read(nullptr, 0));
  EXPECT_FALSE(reader.could_be_read(plain.data(), std::size_t{1} << 45U)) << "its end is not there";
  const void* const kernels = pages_of_the_kernel();
  if (kernels == nullptr) GTEST_SKIP() << test::lacks("pages that the system lets nobody else read ([vvar])");
  EXPECT_FALSE(reader.could_be_read(kernels, 8));
  const auto all = rooms(2, false, reader);
  EXPECT_EQ(all[0]->buffers().find(plain.data(), bytes, true).memory, node::BufferAddress::other_process);
  EXPECT_EQ(all[0]->buffers().find(plain.data(), bytes, false).memory, 0U);
  EXPECT_EQ(all[0]->buffers().find(kernels, 8, true).memory, 0U) << "so it goes through slots";
}

TEST(ProcessMemoryReader, WhatCannotBeReadIsAnErrorWithTheRank) {
  node::ProcessMemoryReader reader({::getpid(), 1 << 30});
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  void* const memory = ::mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const from = static_cast<std::byte*>(memory);
  std::fill(from, from + 2 * page, std::byte{5});
  std::vector<std::byte> to(2 * page);
  reader.read(0, to.data(), reinterpret_cast<std::uintptr_t>(from), 2 * page);
  EXPECT_EQ(to[2 * page - 1], std::byte{5});
  ASSERT_EQ(::munmap(from + page, page), 0);
  const auto fault = [&](int member) {
    try {
      reader.read(member, to.data(), reinterpret_cast<std::uintptr_t>(from), 2 * page);
      return std::string("nothing");
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::peer_failed);
      return std::string(error.what());
    }
  };
  for (const int member : {0, 1}) EXPECT_NE(fault(member).find(text("memory of rank ", member)), std::string::npos);
  reader.name_members({4, 6});  // a node's members are not all ranks of a job
  EXPECT_NE(fault(1).find("memory of rank 6"), std::string::npos);
  ::munmap(from, page);
}

TEST(SharedMemory, IsOpenedByItsTicketOnly) {
  auto made = SharedMemory::make(4096, true);
  auto opened = SharedMemory::open(made.ticket(), 4096);
  made.memory().get()[17] = std::byte{42};
  EXPECT_EQ(opened.memory().get()[17], std::byte{42});
  EXPECT_NE(opened.memory().get(), made.memory().get());
  const std::string ticket = made.ticket();
  EXPECT_THROW(SharedMemory::open(ticket + "1", 4096), Error) << "another file has that number";
  made.close();
  EXPECT_THROW(SharedMemory::open(ticket, 4096), Error);
  EXPECT_EQ(opened.memory().get()[17], std::byte{42}) << "the memory outlives its file";
}

TEST(SharedMemory, MoreThanThereIsIsRefusedAndNotKilledFor) {
  try {
    SharedMemory::make(std::size_t{1} << 46U, true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::out_of_memory);
    EXPECT_NE(std::string(error.what()).find("are free"), std::string::npos) << error.what();
  }
}

// Who has published a step may still read the one before it: a ring of so many places is so many steps less two.
TEST(NodeRoom, APlaceIsWrittenAgainWhenNobodyReadsItAnyMore) {
  constexpr node::StepNumber nearly_around = 0xfffffff0U;
  for (const auto& [holder, places] :
       {std::pair(node::StepStorage::slot, 4), std::pair(node::StepStorage::line, 128)}) {
    for (const node::StepNumber begin : {0U, 7U, nearly_around}) {
      auto all = rooms(3, true);
      for (const auto& each : all) each->ring().begin_at(begin);
      const auto ahead = [&, which = holder] {
        int steps = 0;
        for (; all[0]->ring().is_free(which) && steps < 1000; ++steps) all[0]->ring().publish(1);
        return steps;
      };
      EXPECT_EQ(ahead(), places - 2);
      all[1]->ring().publish(1);
      EXPECT_EQ(ahead(), 0) << "the third has published nothing";
      all[2]->ring().publish(1);
      EXPECT_EQ(ahead(), 1);
      for (int i = 0; i < 10; ++i) {
        all[1]->ring().publish(1);
        all[2]->ring().publish(1);
      }
      EXPECT_EQ(ahead(), 10);
      all[0]->ring().note_reached_by_all(begin + 11);
      EXPECT_EQ(ahead(), 0) << "they are where they were";
      constexpr int around = 140;
      for (int i = 0; i < around; ++i) {
        all[1]->ring().publish(1);
        all[2]->ring().publish(1);
      }
      EXPECT_EQ(ahead(), around) << "where their steps were, there are later ones";
    }
  }
}

// One gives and needs nobody, the other reads: nothing but the rule keeps them apart, for a thread sanitizer to judge.
TEST(NodeRoom, ASlotIsReadBeforeItIsWrittenAgain) {
  constexpr node::StepNumber steps = 2000;
  constexpr std::uint32_t mark = 7;
  auto all = rooms(2, true);
  std::jthread reader([&] {
    for (node::StepNumber step = 1; step <= steps; ++step) {
      while (!all[1]->ring().has_published_in(0, step, mark)) std::this_thread::yield();
      node::StepNumber found = 0;
      std::memcpy(&found, all[1]->ring().slot(0, step, 0), sizeof found);
      EXPECT_EQ(found, step);
      all[1]->ring().publish(mark);
    }
  });
  for (node::StepNumber step = 1; step <= steps; ++step) {
    while (!all[0]->ring().is_free(node::StepStorage::slot)) std::this_thread::yield();
    std::memcpy(all[0]->ring().my_next_slot(0), &step, sizeof step);
    all[0]->ring().publish(mark);
  }
}

// Whoever arrives last looks at nobody's line any more, and the others see what it made of all.
TEST(NodeRoom, TheLastToArriveSeesWhatAllGave) {
  constexpr node::StepNumber steps = 1000;
  constexpr std::uint32_t mark = 7;
  auto all = rooms(2, true);
  const auto member = [&](int me) {
    node::Room& room = *all[static_cast<std::size_t>(me)];
    for (node::StepNumber step = 1; step <= steps; ++step) {
      std::memcpy(room.ring().my_next_slot(0), &step, sizeof step);
      room.ring().publish(mark);
      node::StepNumber found = 0;
      if (room.results().arrives_last(step)) {
        std::memcpy(&found, room.ring().slot(1 - me, step, 0), sizeof found);
        std::memcpy(room.results().line(step).payload, &found, sizeof found);
        room.results().publish(step, mark);
      } else {
        while (!room.results().has_published_in(step, mark)) std::this_thread::yield();
        std::memcpy(&found, room.results().line(step).payload, sizeof found);
      }
      EXPECT_EQ(found, step);
    }
  };
  const std::jthread other(member, 1);
  member(0);
}

TEST(NodeRoom, WhoGaveUpIsNotReachedInto) {
  auto all = rooms(2, true);
  EXPECT_TRUE(all[0]->access().begin_peer_access());
  all[0]->access().end_peer_access();
  EXPECT_TRUE(all[1]->access().abandon());
  EXPECT_FALSE(all[0]->access().begin_peer_access());
  EXPECT_TRUE(all[0]->access().abandon());
}

TEST(NodeRoom, WhoGivesUpWaitsForWhoIsReachingButNotForEver) {
  auto all = rooms(2, true);
  EXPECT_TRUE(all[0]->access().begin_peer_access());
  EXPECT_FALSE(all[1]->access().abandon()) << "it did not end within a second";
}

TEST(NodeRoom, ASleeperIsWoken) {
  auto all = rooms(2, true);
  constexpr std::int64_t long_sleep = 20'000'000'000;
  const auto begin = std::chrono::steady_clock::now();
  std::thread sleeper([&] { all[0]->sleeper().sleep(long_sleep); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  all[1]->ring().publish(9);
  sleeper.join();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  EXPECT_TRUE(all[0]->ring().has_published_in(1, 1, 9));
}

// Threads of one process: their memory is reached wherever it lies, and taken together all the same.
TEST(Symmetric, OfThreads) {
  test::with_members(3, [](Communicator& world) {
    auto one = world.allocate<float>(1000);
    auto two = world.allocate<float>(5);
    for (float& each : one) ASSERT_EQ(each, 0.0F);
    std::ranges::fill(one, static_cast<float>(world.rank() + 1));
    world.all_reduce(one, sum);
    ASSERT_EQ(one[999], 6.0F);
    one.resize(2000);
    ASSERT_EQ(one[999], 6.0F);
    ASSERT_EQ(one[1000], 0.0F);
    two = {};
    world.all_reduce(one, sum);
    ASSERT_EQ(one[0], 18.0F);
  });
}

TEST(Symmetric, TooMuchIsRefusedByAll) {
  test::with_members(2, [](Communicator& world) {
    try {
      world.allocate<double>(world.rank() == 0 ? 10 : std::size_t{1} << 43U);
      FAIL() << "nothing was said";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::out_of_memory);
      EXPECT_NE(std::string(error.what()).find("rank 1"), std::string::npos) << error.what();
    }
    world.barrier();
  });
}

TEST(Tuning, EndsWithWhoIsGone) {
  const auto all = rooms(2, true);
  try {
    step_nanoseconds(*all[0], {.limit_seconds = 60, .lost = [] { return "rank 1 is gone"; }});
    ADD_FAILURE() << "it measured alone";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::peer_failed);
    EXPECT_NE(std::string_view(error.what()).find("rank 1 is gone"), std::string_view::npos) << error.what();
  }
}

}  // namespace
}  // namespace lockstep
