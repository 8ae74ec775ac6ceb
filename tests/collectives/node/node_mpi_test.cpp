// SPDX-License-Identifier: Apache-2.0
// Memory that processes share: found, taken together, freed, refused.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "collectives/communicator/communicator.hpp"
#include "collectives/mpi/mpi_transport.hpp"
#include "tests/support/holds.hpp"
#include "tests/support/mpi_test.hpp"
#include "tests/support/sanitized.hpp"

namespace lockstep::test {
namespace {

class NodeMemory : public NeedsRanks<2> {
 protected:
  Communicator& members() { return session().world(); }
};

// Of shared memory: what other libraries open and close meanwhile is their own.
std::size_t open_files() {
  std::size_t all = 0;
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;
    const std::string target = std::filesystem::read_symlink(each.path(), gone);
    if (target.find("memfd:lockstep") != std::string::npos) ++all;
  }
  return all;
}

// Memory of this process that has the name of a shared one, in KiB.
std::size_t mapped_kib() {
  std::ifstream maps("/proc/self/smaps");
  std::size_t all = 0;
  bool ours = false;
  for (std::string line; std::getline(maps, line);) {
    if (line.find('-') < line.find(' ') && line.find(':') > 20) ours = line.find("memfd:lockstep") != std::string::npos;
    if (ours && line.starts_with("Rss:")) all += std::stoul(line.substr(4));
  }
  return all;
}

TEST_F(NodeMemory, IsUsedWithinANode) {
  std::vector<float> data(10);
  EXPECT_EQ(members().plan_all_reduce(data, sum).algorithm(), "node");
}

template <class T>
void expect_all_right(Communicator& world, std::span<T> in, std::span<T> out) {
  const auto n = static_cast<std::size_t>(world.size());
  const auto fill = [&] {
    for (std::size_t i = 0; i < in.size(); ++i)
      in[i] = static_cast<T>(static_cast<std::size_t>(world.rank() + 1) + i % 50);
  };
  const auto total = static_cast<std::size_t>(world.size() * (world.size() + 1) / 2);
  fill();
  world.all_reduce(in, out.first(in.size()), sum);
  for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], static_cast<T>(total + n * (i % 50))) << i;
  world.all_reduce(in, sum);
  for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(in[i], static_cast<T>(total + n * (i % 50))) << i;
  fill();
  world.all_gather(in, out);
  for (std::size_t m = 0; m < n; ++m) {
    for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[m * in.size() + i], static_cast<T>(m + 1 + i % 50));
  }
  std::ranges::fill(out, T{});
  if (world.rank() == 1) std::ranges::copy(in, out.begin());
  world.broadcast(out.first(in.size()), 1);
  for (std::size_t i = 0; i < in.size(); ++i) ASSERT_EQ(out[i], static_cast<T>(2 + i % 50));
  const std::size_t each = in.size() / n;
  world.all_to_all(in.first(each * n), out.first(each * n));
  const auto me = static_cast<std::size_t>(world.rank());
  for (std::size_t m = 0; m < n; ++m) {
    for (std::size_t i = 0; i < each; ++i) ASSERT_EQ(out[m * each + i], static_cast<T>(m + 1 + (me * each + i) % 50));
  }
  world.reduce_scatter(in.first(each * n), out.first(each), sum);
  for (std::size_t i = 0; i < each; ++i) ASSERT_EQ(out[i], static_cast<T>(total + n * ((me * each + i) % 50)));
}

TEST_F(NodeMemory, RecognisesSymmetricBuffersAndTheirParts) {
  Communicator world = members().duplicate();
  const auto n = static_cast<std::size_t>(world.size());
  for (const std::size_t count : {10UL, 3000UL, 100'000UL}) {
    auto in = world.allocate<double>(count + 7);
    auto out = world.allocate<double>(count * n + 3);
    expect_all_right<double>(world, in.span().subspan(7), out.span().first(count * n));
    // One side of one member lies elsewhere: then all go by slots.
    std::vector<double> own(count);
    const bool mine = world.rank() == 1;
    expect_all_right<double>(world, mine ? std::span(own) : in.span().first(count), out.span().first(count * n));
  }
}

// Whether a call was made before on this member, and how, is no affair of the others.
TEST_F(NodeMemory, BlockingCallsMeetNonBlockingOnes) {
  Communicator world = members().duplicate();
  const auto n = static_cast<std::size_t>(world.size());
  const auto some = world.allocate<int>(1);
  std::vector<int> in(16384);
  std::vector<int> out(16384 * n);
  for (int round = 0; round < 20; ++round) {
    std::ranges::fill(in, world.rank() + round);
    if (world.rank() == 0)
      world.all_gather(in, out);
    else
      world.all_gather_async(in, out).wait();
    for (std::size_t m = 0; m < n; ++m) ASSERT_EQ(out[m * in.size() + 5], static_cast<int>(m) + round);
  }
}

TEST_F(NodeMemory, SymmetricMemoryIsFreedInAnyOrderAndGivenBack) {
  Communicator world = members().duplicate();
  const std::size_t files = open_files();
  world.barrier();
  const std::size_t before = mapped_kib();
  constexpr std::size_t count = 1U << 20U;
  {
    auto one = world.allocate<std::byte>(count);
    auto two = world.allocate<std::byte>(count);
    auto three = world.allocate<std::byte>(count);
    for (auto* each : {&one, &two, &three}) std::ranges::fill(*each, std::byte{1});
    EXPECT_GE(mapped_kib() - before, 3 * count / 1024);
    if (world.rank() == 0) one = {};
    two = {};
    if (world.rank() != 0) one = {};
    std::vector<float> data(5000, 1);
    world.all_reduce(data, sum);
    EXPECT_EQ(data[4999], static_cast<float>(world.size()));
    EXPECT_EQ(three[count - 1], std::byte{1});
  }
  world.barrier();
  EXPECT_LT(mapped_kib(), before + count / 1024) << "the pages have gone, before any further call";
  const auto last = world.allocate<int>(1);
  EXPECT_EQ(open_files(), files) << "no file of shared memory stays open";
}

// Its pages have gone back to the system, and would be zeros.
TEST_F(NodeMemory, PlansOfFreedBuffersAreRefusedOnAll) {
  constexpr std::size_t count = 50'000;
  Communicator own = members().duplicate();
  std::optional data(own.allocate<int>(count));
  std::ranges::fill(*data, 1);
  auto plan = own.plan_all_reduce(*data, sum);
  plan.run();
  EXPECT_EQ((*data)[count - 1], own.size());
  const bool is_mine = own.rank() == 1;
  try {
    own.barrier();  // out of which one may come to hear of it
    if (is_mine) data.reset();
    plan.run();
    ADD_FAILURE() << "nobody knew of it";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), is_mine ? Code::usage : Code::peer_failed) << error.what();
    EXPECT_PRED2(holds, error.what(), "input of a planned all_reduce at ");
    EXPECT_NE(std::string_view(error.what()).find("was freed since"), std::string_view::npos) << error.what();
  }
}

// Taken before and after the split, and by a parent of a parent.
TEST_F(NodeMemory, AParentsSymmetricBuffersAreThoseOfItsParts) {
  Communicator world = members().duplicate();
  constexpr std::size_t count = 100'000;
  const auto n = static_cast<std::size_t>(world.size());
  auto before = world.allocate<double>(count);
  auto reversed = world.split(0, -world.rank());
  auto part = reversed->split(world.size() < 4 ? 0 : world.rank() % 2);
  auto after = world.allocate<double>(count * n);
  for (Communicator* each : {&*reversed, &*part}) {
    expect_all_right<double>(*each, before.span(), after.span().first(count * static_cast<std::size_t>(each->size())));
    std::vector<double> own(count);
    const bool mine = each->rank() == 1;
    expect_all_right<double>(*each, mine ? std::span(own) : before.span(),
                             after.span().first(count * static_cast<std::size_t>(each->size())));
  }
  // Started before all have taken it, and done while they do.
  std::vector<double> plain(count, 1.0);
  auto request = part->all_reduce_async(plain, sum);
  auto late = world.allocate<double>(count);
  request.wait();
  EXPECT_EQ(plain[count - 1], part->size());
  std::ranges::fill(late, 1.0);
  part->all_reduce(late, sum);
  EXPECT_EQ(late[count - 1], part->size());
}

TEST_F(NodeMemory, SubCommunicatorsHaveRoomsOfTheirOwn) {
  auto part = members().split(members().rank() % 2);
  std::vector<int> one = {1};
  part->barrier();
  auto copy = members().duplicate();
  for (int i = 0; i < 100; ++i) {
    one[0] = 1;
    auto request = copy.all_reduce_async(one, sum);
    std::vector<int> other = {2};
    part->all_reduce(other, sum);
    request.wait();
    ASSERT_EQ(one[0], copy.size());
  }
}

// A neighbour's memory cannot be opened where a process may not open files any more.
TEST_F(NodeMemory, WhereMemoryCannotBeOpenedMessagesDo) {
  if (sanitized) GTEST_SKIP() << lacks("needs a build without sanitizers, whose checks open files of their own");
  if (session().backend()) GTEST_SKIP() << lacks("needs MPI: without it the messages themselves need descriptors");
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  if (members().rank() == 1) {
    const rlimit none{0, limit.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  Communicator world = members().duplicate();
  if (members().rank() == 1) setrlimit(RLIMIT_NOFILE, &limit);
  std::vector<float> data(1000, 1);
  EXPECT_NE(world.plan_all_reduce(data, sum).algorithm(), "node");
  world.all_reduce(data, sum);
  EXPECT_EQ(data[999], static_cast<float>(world.size()));
  Communicator again = members().duplicate();
  EXPECT_EQ(again.plan_all_reduce(data, sum).algorithm(), "node");
}

double cpu_seconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) / 1e9;
}

// Of a second in which one member is late, a waiting one spends next to nothing.
TEST_F(NodeMemory, WaitingMembersSleep) {
  Communicator& world = members();
  std::vector<float> data(1000, 1);
  world.all_reduce(data, sum);
  const double before = cpu_seconds();
  if (world.rank() == 0) std::this_thread::sleep_for(std::chrono::seconds(1));
  std::vector<float> one(1000, 1);
  world.all_reduce(one, sum);
  EXPECT_LT(cpu_seconds() - before, 0.1);  // 0.04 measured, 0.05 is the aim; a busy machine makes each waking dearer
  EXPECT_EQ(one[999], static_cast<float>(world.size()));
}

// What a child of the program does with its copy of the memory is its own affair.
TEST_F(NodeMemory, AForkedChildThatEndsDisturbsNothing) {
  Communicator& world = members();
  std::vector<int> one = {1};
  world.all_reduce(one, sum);
  auto shared = world.allocate<int>(1000);
  std::ranges::fill(shared, 7);
  if (world.rank() == 0) {
    const pid_t child = fork();
    if (child == 0) {
      shared = {};  // as its destructor would do
      _exit(0);
    }
    int status = 0;
    waitpid(child, &status, 0);
  }
  one[0] = 1;
  world.all_reduce(one, sum);
  EXPECT_EQ(one[0], world.size());
  EXPECT_EQ(shared[999], 7);
}

}  // namespace
}  // namespace lockstep::test
