// SPDX-License-Identifier: Apache-2.0
// Many members in one process, large data, and what a repeated call may not do: allocate.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>

#include "tests/collectives/communicator/members.hpp"
#include "tests/support/allocations.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::test {
namespace {

TEST(Repeated, CallsDoNotAllocate) {
  with_members(3, [](Communicator& world) {
    std::vector<float> data(5000, 1.0F);
    std::vector<double> small(4, 1.0);
    std::vector<int> all(30);
    std::vector<int> mine(10, world.rank());
    std::vector<int> twice(30);
    const std::vector<std::size_t> counts(3, 10);
    auto plan = world.plan_all_reduce(data, avg);
    const auto everything = [&] {
      plan.run();
      world.all_reduce(small, sum);
      auto request = world.all_reduce_async(data, max);
      world.all_gather(mine, all);
      request.wait();
      world.broadcast(mine, 1);
      const int next = (world.rank() + 1) % 3;
      world.sendrecv(mine, next, std::span(all).first(10), (world.rank() + 2) % 3);
      world.all_gather_v(mine, all, counts);
      world.gather_v(mine, all, counts, 1);
      world.all_to_all_v(all, counts, twice, counts);
      world.barrier();
    };
    for (int turn = 0; turn < 20; ++turn) everything();
    const std::size_t before = allocations_made();
    for (int turn = 0; turn < 50; ++turn) everything();
    const std::size_t after = allocations_made();
    world.barrier();  // nobody leaves before: the last words of others take memory
    EXPECT_EQ(after, before);
  });
}

// Every collective once; each result is easy to say.
void once_around(Communicator& world) {
  const int size = world.size();
  const auto n = static_cast<std::size_t>(size);
  const int rank = world.rank();
  std::vector<int> data(n + 3, rank);
  world.all_reduce(data, sum);
  EXPECT_EQ(data, std::vector<int>(n + 3, size * (size - 1) / 2));
  std::vector<int> all(n, -1);
  world.all_gather(std::span(&rank, 1), all);
  for (int i = 0; i < size; ++i) EXPECT_EQ(all[static_cast<std::size_t>(i)], i);
  int block = -1;
  world.reduce_scatter(all, std::span(&block, 1), sum);
  EXPECT_EQ(block, rank * size);
  std::vector<int> turned(n);
  for (int i = 0; i < size; ++i) all[static_cast<std::size_t>(i)] = rank * 1000 + i;
  world.all_to_all(all, turned);
  for (int i = 0; i < size; ++i) EXPECT_EQ(turned[static_cast<std::size_t>(i)], i * 1000 + rank);
  int before = -1;
  world.exscan(std::span(&size, 1), std::span(&before, 1), sum);
  EXPECT_EQ(before, rank == 0 ? -1 : rank * size);
  EXPECT_EQ(world.broadcast(rank, size / 2), size / 2);
  world.barrier();
}

// With a sanitizer 256 threads need minutes.
constexpr int many = sanitized ? 64 : 256;

TEST(ManyMembers, EndEveryCollective) {
  with_members(many, once_around, {}, {std::chrono::seconds(90), std::chrono::seconds(180)});
}

// Of each member: 64 KiB, and 100 bytes for each of the others; what its plans take comes to that. The memory in which
// members of a node meet is theirs together, and is not counted.
TEST(Memory, OfACommunicatorIsBounded) {
  for (const int size : {4, many}) {
    with_members(size,
                 [size](Communicator& world) {
                   const auto bytes_of_all = [&] {  // while nobody does anything else
                     world.barrier();
                     const std::ptrdiff_t bytes = bytes_living();
                     world.barrier();
                     return bytes;
                   };
                   const std::ptrdiff_t before = bytes_of_all();
                   Communicator other = world.duplicate();
                   const std::ptrdiff_t made = bytes_of_all();
                   std::vector<float> data(16, 1);
                   other.all_reduce(data, sum);
                   const std::ptrdiff_t used = bytes_of_all();
                   if (world.rank() != 0) return;
                   EXPECT_LT((made - before) / size, 65536 + 100 * size) << "of " << size;
                   std::cout << size << " members: " << (made - before) / size << " bytes each, and with a plan "
                             << (used - before) / size << '\n';
                 },
                 {.node_memory = false}, {std::chrono::seconds(90), std::chrono::seconds(180)});
  }
}

double free_gib() {
  return static_cast<double>(sysconf(_SC_AVPHYS_PAGES)) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1U << 30U);
}

// In huge pages, since most of these tests' time would be page faults otherwise.
template <class T>
class LargeMemory {
 public:
  explicit LargeMemory(std::size_t count)
      : bytes_(count * sizeof(T)),
        at_(::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)) {
    EXPECT_NE(at_, MAP_FAILED);
    static_cast<void>(::madvise(at_, bytes_, MADV_HUGEPAGE));
  }
  ~LargeMemory() { ::munmap(at_, bytes_); }
  LargeMemory(const LargeMemory&) = delete;
  LargeMemory& operator=(const LargeMemory&) = delete;
  std::span<T> span() const { return {static_cast<T*>(at_), bytes_ / sizeof(T)}; }

 private:
  std::size_t bytes_;
  void* at_;
};

TEST(Large, MoreThan2ToThe31Elements) {
  if (sanitized || free_gib() < 9) GTEST_SKIP() << lacks("9 GiB of free memory, and a program without a sanitizer");
  with_members(2,
               [](Communicator& world) {
                 const std::size_t count = (std::size_t{1} << 31U) + 12345;
                 const LargeMemory<std::uint8_t> memory(count);
                 const auto data = memory.span();
                 std::ranges::fill(data, static_cast<std::uint8_t>(world.rank() + 1));
                 data[count - 1] = static_cast<std::uint8_t>(world.rank() + 5);
                 world.all_reduce(data, sum);
                 EXPECT_EQ(data[0], 3);
                 EXPECT_EQ(data[std::size_t{1} << 31U], 3);
                 EXPECT_EQ(data[count - 1], 11);
               },
               {}, {std::chrono::seconds(60), std::chrono::seconds(180)});
}

TEST(Large, ABroadcastOfMoreThan4Gib) {
  if (sanitized || free_gib() < 11) GTEST_SKIP() << lacks("11 GiB of free memory, and a program without a sanitizer");
  with_members(2,
               [](Communicator& world) {
                 const std::size_t count = (std::size_t{9} << 26U) + 1;  // of 8 bytes: 4.5 GiB
                 const LargeMemory<std::uint64_t> memory(count);
                 const auto data = memory.span();
                 if (world.rank() == 1) std::ranges::fill(data, 7U);
                 if (world.rank() == 1) data[count - 1] = 9;
                 world.broadcast(data, 1);
                 EXPECT_EQ(data[0], 7U);
                 EXPECT_EQ(data[count - 2], 7U);
                 EXPECT_EQ(data[count - 1], 9U);
               },
               {}, {std::chrono::seconds(60), std::chrono::seconds(180)});
}

}  // namespace
}  // namespace lockstep::test
