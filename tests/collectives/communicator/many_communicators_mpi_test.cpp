// SPDX-License-Identifier: Apache-2.0
// A thousand communicators that are made, used and ended: what a process holds then is what it held before.
#include <gtest/gtest.h>
#include <malloc.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <deque>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ostream>
#include <thread>

#include "collectives/communicator/communicator.hpp"
#include "collectives/engine/idle_memory.hpp"
#include "tests/collectives/communicator/all_ranks.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::test {
namespace {

std::size_t entries_in(const char* folder) {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& each : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

std::size_t lines_in(const char* path) {
  std::ifstream file(path);
  std::size_t count = 0;
  for (std::string line; std::getline(file, line);) ++count;
  return count;
}

struct Holdings {
  std::size_t descriptors = entries_in("/proc/self/fd");
  std::size_t threads = entries_in("/proc/self/task");
  std::size_t mappings = lines_in("/proc/self/maps");
  std::size_t heap_bytes = ::mallinfo2().uordblks + ::mallinfo2().hblkhd;
};

std::ostream& operator<<(std::ostream& out, const Holdings& all) {
  return out << all.descriptors << " descriptors, " << all.threads << " threads, " << all.mappings << " mappings, "
             << all.heap_bytes << " bytes";
}

// Of several kinds; up to four live at once, and the first ends first.
void make_and_end(Communicator& from, int number) {
  std::deque<Communicator> living;
  for (int i = 0; i < number; ++i) {
    switch (i % 3) {
      case 0:
        living.push_back(from.duplicate());
        break;
      case 1:
        living.push_back(from.reproducible());
        break;
      default:
        living.push_back(*from.split(from.rank() % 2, -from.rank()));
    }
    Communicator& made = living.back();
    ASSERT_EQ(made.all_reduce(1, sum), made.size());
    if (living.size() > 4) living.pop_front();
  }
}

TEST(ManyCommunicators, LeaveNothingBehind) {
  Communicator all = all_ranks();
  constexpr int enough_to_settle = 100;
  constexpr int many = sanitized ? 300 : 1000;
  make_and_end(all, enough_to_settle);
  all.barrier();
  const Holdings before;
  make_and_end(all, many);
  all.barrier();
  const Holdings after;
  if (all.rank() == 0) std::cout << before << "; after " << many << ": " << after << std::endl;
  constexpr std::size_t few = 50;  // of what comes and goes by itself, as connections on which last words are heard
  EXPECT_LE(after.descriptors, before.descriptors + few);
  EXPECT_LE(after.threads, before.threads);
  EXPECT_LE(after.mappings, before.mappings + few);
  constexpr std::size_t most_of_each = 768;          // over sockets: the last words of the latest 4096 are kept
  constexpr std::size_t most_by_itself = 64 * 1024;  // the memory of those connections
  EXPECT_LE(after.heap_bytes, before.heap_bytes + many * most_of_each + most_by_itself);
}

// Returns the shared memory of this process in KiB, without that of files.
double shared_kib() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("RssShmem:")) return std::strtod(line.c_str() + 9, nullptr);
  }
  return 0;
}

// Uses many communicators, then two others for a while, and expects that the many return most of their memory.
void expect_that_idle_ones_return_memory(const std::function<void(Communicator&)>& use) {
  Communicator all = all_ranks();
  constexpr int many = 12;
  // Places in slots rotate, so the two others get all of their memory now.
  std::array<Communicator, 2> others = {all.duplicate(), all.duplicate()};
  for (int i = 0; i < 20; ++i) {
    for (Communicator& each : others) use(each);
  }
  std::deque<Communicator> kept;
  for (int i = 0; i < many; ++i) kept.push_back(all.duplicate());
  const double before = shared_kib();
  double of_one = 0;  // KiB; on a slow machine the first ones are idle before the last one is used
  for (Communicator& each : kept) {
    const double so_far = shared_kib();
    use(each);
    of_one = std::max(of_one, shared_kib() - so_far);
  }
  all.barrier();
  for (int i = 0; i < 4; ++i) {
    std::this_thread::sleep_for(2 * IdleMemory::longest);
    for (Communicator& each : others) use(each);
  }
  all.barrier();
  const double idle = shared_kib() - before;
  all.barrier();
  if (all.rank() == 0) std::cout << many * of_one << " KiB, idle " << idle << std::endl;
  constexpr double few = many * 32.0;  // KiB; if members read in each other's processes, slots are not used at all
  EXPECT_LT(idle, std::max(many * of_one / 2, few));
  for (Communicator& each : kept) use(each);
}

TEST(ManyCommunicators, IdleOnesReturnTheirSlots) {
  std::vector<int> mine(64 * 1024, 1);
  std::vector<int> result(mine.size());
  expect_that_idle_ones_return_memory([&](Communicator& made) {
    std::ranges::fill(result, 0);
    made.all_reduce(mine, result, sum);
    EXPECT_EQ(result, std::vector(mine.size(), made.size()));
    made.barrier();
  });
}

TEST(ManyCommunicators, IdleOnesReturnTheirPages) {
  std::vector<int> data(256);
  expect_that_idle_ones_return_memory([&](Communicator& made) {
    for (int i = 0; i < 130; ++i) {
      std::ranges::fill(data, made.rank() == 0 ? i : -1);
      made.broadcast(data, 0);
      EXPECT_EQ(data, std::vector(data.size(), i));
    }
    made.barrier();
  });
}

// Every one fails and its members go on with the next. MPI has channels for about a thousand.
TEST(ManyCommunicators, FailuresGiveTheirChannelsBack) {
  Communicator all = all_ranks({.node_memory = false});
  // More ranks than cores take long, and so does the exact unwinder of sanitizers in each error.
  const int many = all.size() == 2 && !session().backend() && !sanitized ? 2000 : 100;
  for (int i = 0; i < many; ++i) {
    Communicator failing = all.duplicate();
    std::vector<int> data(all.rank() == 1 ? 3 : 2);
    EXPECT_THROW(
        {
          failing.all_reduce(data, sum);
          failing.barrier();
        },
        Error);
  }
  EXPECT_EQ(all.duplicate().all_reduce(1, sum), all.size());
}

}  // namespace
}  // namespace lockstep::test
