// SPDX-License-Identifier: Apache-2.0
// Members that are processes, and have their data in the memory of GPUs that all of them see. Here they are one thread,
// which maps what it has itself.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <optional>
#include <thread>

#include "tests/collectives/node/node_gpus.hpp"
#include "tests/support/pidfd.hpp"

namespace lockstep::test {
namespace {

constexpr std::size_t much = 40'000;  // numbers; a block of it is mapped, too

constexpr Collective collectives[] = {Collective::all_reduce, Collective::reduce,    Collective::reduce_scatter,
                                      Collective::all_gather, Collective::broadcast, Collective::all_to_all,
                                      Collective::gather,     Collective::scatter};

// An all_reduce is one launch, by one member, who alone maps what the others have.
TEST_F(NodeGpus, ReduceByOneLaunch) {
  std::mt19937 random(12);
  auto all = rooms_with_gpus(3);
  Case first = case_of(Collective::all_reduce, 3, much, 0);
  ASSERT_NO_FATAL_FAILURE(run_there(all, first, random, [](int) { return Lies{}; }));
  EXPECT_EQ(gpus().launches(), 1);
  EXPECT_EQ(gpus().mappings(), 3 * 4) << "the first time all try whether they can";
  Case second = case_of(Collective::all_reduce, 3, much, 0);
  ASSERT_NO_FATAL_FAILURE(run_there(all, second, random, [](int) { return Lies{}; }));
  EXPECT_EQ(gpus().launches(), 2);
  EXPECT_EQ(gpus().mappings(), 3 * 4 + 4);
  EXPECT_EQ(second.output, second.expected);
}

// Where what is begun there takes long, little goes by way of the host, for all alike.
TEST_F(NodeGpus, AreNotUsedWhereTheHostIsFaster) {
  std::mt19937 random(21);
  gpus().take(
      {.launch = {5'000'000, 1000}, .copy = {5'000'000, 1000}, .down = {1000, 40'000'000}, .up = {1000, 40'000'000}});
  auto all = rooms_with_gpus(3);
  const auto run = [&](std::size_t count) {
    for (int turn = 0; turn < 2; ++turn) {
      Case one = case_of(Collective::all_reduce, 3, count, 0);
      ASSERT_NO_FATAL_FAILURE(run_there(all, one, random, [](int) { return Lies{}; }));
      EXPECT_EQ(one.output, one.expected);
    }
  };
  run(1500);
  EXPECT_EQ(gpus().launches(), 0);
  for (const auto& room : all) EXPECT_TRUE(room->gpus().shared()->agreement().has_mapped()) << "they could";
  run(much);
  EXPECT_EQ(gpus().launches(), 2);
  EXPECT_EQ(gpus().measurings(), 1);
}

// Members that have measured different things take the same way: that of the first, who measures for all.
TEST_F(NodeGpus, AllMembersChooseTheSameWay) {
  std::mt19937 random(22);
  gpus().costs(0);
  gpus().take({.launch = {1, 1}, .copy = {500'000'000, 1000}, .down = {1000, 1000}, .up = {1000, 1000}});
  gpus().costs(1);
  std::atomic<int> by_host = 0;
  gpus().before_copies([&](FakeGpus::Way way, std::size_t) { by_host += way == FakeGpus::Way::down ? 1 : 0; });
  for (const int first : {0, 1}) {  // the GPU where the first one has its data
    auto all = rooms_with_gpus(3);
    by_host = 0;
    Case one = case_of(Collective::all_gather, 3, 2000, 0);
    ASSERT_NO_FATAL_FAILURE(run_there(all, one, random, [&](int m) {
      return (m == 0) == (first == 1) ? Lies{1, 1} : Lies{0, 0};
    }));
    EXPECT_EQ(one.output, one.expected);
    EXPECT_EQ(by_host > 0, first == 1);
    for (const auto& room : all)
      EXPECT_EQ(room->gpus().shared()->agreement().costs(), all[0]->gpus().shared()->agreement().costs());
  }
}

// On several GPUs, and on the host.
TEST_F(NodeGpus, MayHoldPartOfTheData) {
  std::mt19937 random(13);
  for (const int members : {2, 4}) {
    auto all = rooms_with_gpus(members);
    for (int turn = 0; turn < 40; ++turn) {
      const Collective collective = collectives[static_cast<std::size_t>(turn) % std::size(collectives)];
      std::vector<Lies> lies(static_cast<std::size_t>(members));
      for (Lies& each : lies) each = {static_cast<int>(random() % 3) - 1, static_cast<int>(random() % 3) - 1};
      Case one = case_of(collective, members, turn % 5 == 0 ? 100 : much, turn % members);
      ASSERT_NO_FATAL_FAILURE(run_there(all, one, random, [&](int m) { return lies[static_cast<std::size_t>(m)]; }));
      EXPECT_EQ(one.output, one.expected) << to_string(collective) << " among " << members << ", turn " << turn;
    }
  }
}

// In containers that hide processes from each other, say.
TEST_F(NodeGpus, AreNotMappedByAnyWhereOneCannot) {
  std::mt19937 random(14);
  auto all = rooms_with_gpus(3);
  for (int turn = 0; turn < 3; ++turn) {
    Case one = case_of(Collective::all_reduce, 3, much, 0);
    ASSERT_NO_FATAL_FAILURE(run_there(
        all, one, random, [](int) { return Lies{}; }, [](int m) { FakeGpus::fail_mapping(m == 1); }));
    FakeGpus::fail_mapping(false);
    EXPECT_EQ(one.output, one.expected);
    const std::string why = all[1]->gpus().shared()->failure().take();
    EXPECT_EQ(why.find("mapping") != std::string::npos, turn == 0) << why;
  }
  for (const auto& room : all) EXPECT_FALSE(room->gpus().shared()->agreement().can_map());
  EXPECT_EQ(gpus().launches(), 0);
  // The node's memory is; beside it sums, where this machine's caches make them worth it, for as long as nobody has
  // them.
  EXPECT_LE(gpus().pinnings(), 3);
  EXPECT_EQ(gpus().pinned_places(), 1);
}

// Then the hosts wait for what is in the streams, and nothing goes by way of them.
TEST_F(NodeGpus, AreOrderedByTheHostWhereEventsCannotBeOpened) {
  std::mt19937 random(21);
  auto all = rooms_with_gpus(3);
  for (const Collective collective : collectives) {
    Case one = case_of(collective, 3, much, 1);
    ASSERT_NO_FATAL_FAILURE(run_there(
        all, one, random, [](int) { return Lies{}; }, [](int m) { FakeGpus::fail_opening(m == 1); }));
    FakeGpus::fail_opening(false);
    EXPECT_EQ(one.output, one.expected) << to_string(collective);
    const std::string why = all[1]->gpus().shared()->failure().take();
    EXPECT_EQ(why.find("opening") != std::string::npos, collective == Collective::all_reduce) << why;
  }
  for (const auto& room : all) {
    EXPECT_TRUE(room->gpus().shared()->agreement().has_mapped());
    EXPECT_FALSE(room->gpus().shared()->agreement().can_use_events());
  }
  EXPECT_EQ(gpus().pinned_places(), 0);
}

// The first call need not use all that members have: whether they find it, they learn from it.
TEST_F(NodeGpus, AreUsedOnceAllAreMapped) {
  std::mt19937 random(19);
  auto all = rooms_with_gpus(3);
  Case one = case_of(Collective::broadcast, 3, much, 0);
  ASSERT_NO_FATAL_FAILURE(run_there(
      all, one, random, [](int) { return Lies{}; }, [](int m) { FakeGpus::fail_mapping(m == 0); }));
  FakeGpus::fail_mapping(false);
  EXPECT_EQ(one.output, one.expected);
  for (const auto& room : all)
    EXPECT_FALSE(room->gpus().shared()->agreement().can_map()) << "the root maps nobody for a broadcast";
  EXPECT_EQ(gpus().living(), 0U) << "what nobody needs is not kept mapped";
}

// What is freed there is let go of, whether something else lies there then or not.
TEST_F(NodeGpus, ForgetMemoryThatItsOwnerHasFreed) {
  std::mt19937 random(15);
  for (const bool moves : {false, true}) {
    auto all = rooms_with_gpus(2);
    std::vector<DeviceVector<char>> between;  // so that no address comes again
    for (int turn = 0; turn < 30; ++turn) {
      Case one = case_of(Collective::all_gather, 2, much + static_cast<std::size_t>(turn % 3) * 5000, 0);
      if (moves) between.emplace_back(much * sizeof(std::int32_t) * (1 + static_cast<std::size_t>(turn) % 2));
      ASSERT_NO_FATAL_FAILURE(run_there(all, one, random, [](int) { return Lies{}; }));
      ASSERT_EQ(one.output, one.expected) << turn;
      EXPECT_LE(gpus().living() - between.size(), 4U) << "mapped still";
    }
  }
  EXPECT_GT(gpus().mappings(), 60);
}

// A call that moves few bytes and finds nobody's data on a GPU does not look for it each time.
TEST_F(NodeGpus, AreSearchedWhereTheyWereFound) {
  std::mt19937 random(20);
  auto all = rooms_with_gpus(2);
  const auto run = [&](int device) {
    Case one = case_of(Collective::all_reduce, 2, much, 0);
    const auto before = all[0]->ring().last();
    run_there(all, one, random, [&](int) { return Lies{device, device}; });
    EXPECT_EQ(one.output, one.expected);
    return all[0]->ring().last() - before;
  };
  const auto asking = run(-1);
  for (int turn = 0; turn < 10; ++turn) run(-1);
  EXPECT_FALSE(all[0]->gpus().shared()->queries().should_query_often());
  int shorter = 0;
  for (int turn = 0; turn < 20; ++turn) shorter += run(-1) < asking ? 1 : 0;
  EXPECT_GE(shorter, 15);
  int turns = 1;
  for (; gpus().launches() == 0; ++turns) ASSERT_LT((run(0), turns), 100);
  EXPECT_TRUE(all[1]->gpus().shared()->queries().should_query_often());
  run(0);
  EXPECT_EQ(gpus().launches(), 2);
}

// The smallest calls do not look for it, but now and then; those of a kind that has found some do.
TEST_F(NodeGpus, AreFoundBySmallCallsAsWell) {
  std::mt19937 random(23);
  const auto run = [&](auto& all, int device, std::size_t count) {
    Case one = case_of(Collective::all_reduce, 2, count, 0);
    const auto before = all[0]->ring().last();
    run_there(all, one, random, [&](int) { return Lies{device, device}; });
    EXPECT_EQ(one.output, one.expected);
    return all[0]->ring().last() - before;
  };
  auto all = rooms_with_gpus(2);
  int turns = 0;
  for (; gpus().launches() == 0; ++turns) ASSERT_LT((run(all, 0, 2), turns), 64);
  EXPECT_GT(turns, 4) << "but now and then";
  const int launches = gpus().launches();
  for (int turn = 0; turn < 10; ++turn) {
    for (int other = 0; other < 10; ++other) run(all, -1, 100);  // of another kind
    run(all, 0, 2);
  }
  EXPECT_EQ(gpus().launches(), launches + 10);
  const auto asking = run(all, -1, 2);
  for (int turn = 0; turn < 10; ++turn) run(all, -1, 2);
  int shorter = 0;
  for (int turn = 0; turn < 20; ++turn) shorter += run(all, -1, 2) < asking ? 1 : 0;
  EXPECT_GE(shorter, 15) << "what has left is not looked for";
}

// Each process has its own numbers for them, by CUDA_VISIBLE_DEVICES.
TEST_F(NodeGpus, AreIdentifiedByTheirSerials) {
  std::mt19937 random(18);
  auto all = rooms_with_gpus(4, true);
  for (const Collective collective : collectives) {
    Case one = case_of(collective, 4, much, 1);
    ASSERT_NO_FATAL_FAILURE(run_there(all, one, random, [](int m) { return Lies{m % 2, m % 2}; }));
    EXPECT_EQ(one.output, one.expected) << to_string(collective);
  }
  EXPECT_EQ(gpus().pinnings(), 0);
}

// Nobody reads what a member's own stream has not done yet.
TEST_F(NodeGpus, WaitForEarlierWorkOfTheStream) {
  std::mt19937 random(16);
  auto all = rooms_with_gpus(2);
  std::atomic<bool> is_open = false;
  std::optional<std::chrono::steady_clock::time_point> begin;
  Case one = case_of(Collective::all_reduce, 2, much, 0);
  ASSERT_NO_FATAL_FAILURE(run_there(
      all, one, random, [](int) { return Lies{}; },
      [&](int) {
        const auto now = std::chrono::steady_clock::now();
        if (!begin) {  // the data is there by now
          begin = now;
          gpus().put(nullptr, [&] {
            while (!is_open) std::this_thread::yield();
          });
        }
        if (now - *begin > std::chrono::milliseconds(100)) is_open = true;
      }));
  EXPECT_TRUE(is_open.exchange(true)) << "the call ended before";
  EXPECT_EQ(one.output, one.expected);
}

TEST_F(NodeGpus, AreThoseThatAllMembersSee) {
  const auto find = [&](const Serials& serials, int me) {
    return Gpus::find(serials, me, apart(static_cast<int>(serials.size())));
  };
  EXPECT_EQ(find({{"a"}, {"b"}}, 0), nullptr);
  EXPECT_EQ(find({{"a"}, {}}, 0), nullptr);
  const auto mine = find({{"a", "b", "c"}, {"c", "a"}}, 1);
  ASSERT_NE(mine, nullptr);
  EXPECT_EQ(mine->number_of(1), 0);
  EXPECT_EQ(mine->number_of(0), 1);
  EXPECT_EQ(mine->device_of(1), 0);
  const auto other = find({{"a", "b", "c"}, {"c", "a"}}, 0);
  EXPECT_EQ(other->number_of(1), Gpus::unknown);
  EXPECT_EQ(other->device_of(Gpus::unknown), Gpus::unknown);
}

// A process that does nothing until it is killed.
class Idle {
 public:
  Idle() : process_(::fork()) {
    while (process_ == 0) ::pause();
  }
  ~Idle() {
    kill();
    ::waitpid(process_, nullptr, 0);
  }
  Idle(const Idle&) = delete;
  Idle& operator=(const Idle&) = delete;
  pid_t process() const { return process_; }
  void kill() const { ::kill(process_, SIGKILL); }

 private:
  pid_t process_;
};

constexpr int long_enough_ms = 10'000;

TEST_F(NodeGpus, AreFreedByAKilledProcess) {
  if (const std::string lacking = why_processes_are_not_watched(); !lacking.empty()) GTEST_SKIP() << lacking;
  const Idle other;
  const node::ProcessMemoryReader reader({::getpid(), other.process()});
  auto all = rooms_with_gpus(2, false, reader);
  EXPECT_FALSE(reader.is_gone(0));
  EXPECT_FALSE(reader.is_gone(1, 1));
  EXPECT_FALSE(node::ProcessMemoryReader().is_gone(1)) << "nobody knows";
  ASSERT_TRUE(all[1]->access().begin_peer_access());
  other.kill();
  EXPECT_TRUE(reader.is_gone(1, long_enough_ms));
  EXPECT_TRUE(reader.is_gone(1)) << "before anybody asks how it ended";
  EXPECT_TRUE(all[0]->access().abandon());
}

// Whoever has seen them may come to wait for them, until it has left as well, or is gone.
TEST_F(NodeGpus, KeepEventsOfMembersThatHaveLeft) {
  if (const std::string lacking = why_processes_are_not_watched(); !lacking.empty()) GTEST_SKIP() << lacking;
  for (const bool is_killed : {false, true}) {
    std::mt19937 random(31);
    const Idle other;
    auto all = rooms_with_gpus(2, false, node::ProcessMemoryReader({::getpid(), other.process()}));
    Case one = case_of(Collective::all_reduce, 2, much, 0);
    ASSERT_NO_FATAL_FAILURE(run_there(all, one, random, [](int) { return Lies{}; }));
    const std::size_t both = gpus().events_in_use();
    ASSERT_GT(both, 0U);
    all[0]->gpus().set_events_shared(true);
    all[0].reset();
    EXPECT_EQ(gpus().events_in_use(), both);
    if (is_killed) {
      other.kill();
      EXPECT_TRUE(node::ProcessMemoryReader({other.process()}).is_gone(0, long_enough_ms));
      EXPECT_EQ(gpus().events_in_use(), both / 2);
    }
    all[1].reset();
    EXPECT_EQ(gpus().events_in_use(), 0U);
  }
}

}  // namespace
}  // namespace lockstep::test
