// SPDX-License-Identifier: Apache-2.0
// Data in a GPU's memory that go by the node's slots: while one part is worked on the next one comes and the last one
// goes, and nobody reads or overwrites what a copy has not done with.
#include <array>
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/collectives/node/node_gpus.hpp"

namespace lockstep::test {
namespace {

using Way = FakeGpus::Way;

class NodeDeviceCopies : public NodeGpus {
 protected:
  // Nobody sees the others' GPUs; and everything goes in several parts.
  static std::vector<std::unique_ptr<node::Room>> rooms_of(int members) {
    auto all = rooms(members, false);
    node::Tuning small = all.front()->tuning();
    small.two_phase_from = small.segment = small.step = small.flow_from = part_bytes;
    for (auto& room : all) room->thresholds().set(small);
    return all;
  }
  static constexpr std::size_t part_bytes = 4096;
  static constexpr std::size_t count = 7 * part_bytes / sizeof(std::int32_t) + 5;
};

constexpr Collective all_collectives[] = {
    Collective::all_reduce,   Collective::reduce,    Collective::reduce_scatter, Collective::reduce_scatter_v,
    Collective::all_gather,   Collective::broadcast, Collective::all_gather_v,   Collective::all_to_all,
    Collective::all_to_all_v, Collective::gather,    Collective::gather_v,       Collective::scatter,
    Collective::scatter_v,    Collective::scan,      Collective::exscan};

// Each copy takes its time, another time each: who does not wait for one sees something else there.
TEST_F(NodeDeviceCopies, AreRightWithCopiesOfAnyDuration) {
  std::atomic<unsigned> drawn = 0;
  gpus().before_copies([&](Way, std::size_t) {
    std::this_thread::sleep_for(std::chrono::microseconds((drawn.fetch_add(1) * 7919 % 11) * 20));
  });
  std::mt19937 random(31);
  for (const int members : {2, 3}) {
    auto all = rooms_of(members);
    for (const Collective collective : all_collectives) {
      for (const bool mixed : {false, true}) {
        std::vector<Lies> lies(static_cast<std::size_t>(members));
        for (Lies& each : lies)
          each = mixed ? Lies{static_cast<int>(random() % 3) - 1, static_cast<int>(random() % 3) - 1} : Lies{1, 0};
        Case one = case_of(collective, members, count, members - 1);
        ASSERT_NO_FATAL_FAILURE(run_there(all, one, random, [&](int m) { return lies[static_cast<std::size_t>(m)]; }));
        EXPECT_EQ(one.output, one.expected)
            << to_string(collective) << " among " << members << (mixed ? ", mixed" : "");
      }
    }
  }
}

// The first part of a result is held on its way to a GPU: meanwhile later parts of the input have come, and been worked
// on. (Parts `ahead`: that which is taken, those that are published after it, and the one that comes meanwhile.)
TEST_F(NodeDeviceCopies, SendOnePartWhileOthersArrive) {
  struct Way_of {
    Collective collective;
    int ahead;
  };
  std::mt19937 random(32);
  for (const auto& [collective, ahead] :
       {Way_of{Collective::all_reduce, 4}, Way_of{Collective::all_gather, 3}, Way_of{Collective::scan, 3}}) {
    std::atomic<int> come = 0;
    std::atomic<bool> is_first = true;
    std::atomic<bool> in_time = false;
    gpus().before_copies([&, awaited = 2 * ahead](Way way, std::size_t) {
      if (way == Way::down) ++come;
      if (way != Way::up || !is_first.exchange(false)) return;
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      while (come < awaited && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      in_time = come >= awaited;
    });
    auto all = rooms_of(2);
    Case one = case_of(collective, 2, count, 0);
    ASSERT_NO_FATAL_FAILURE(run_there(all, one, random, [](int) { return Lies{0, 0}; }));
    EXPECT_EQ(one.output, one.expected);
    EXPECT_TRUE(in_time) << to_string(collective) << ": " << come << " parts had come";
    gpus().before_copies({});
  }
}

// A member that waits for the others' first part has its second one come.
TEST_F(NodeDeviceCopies, BeginBeforeTheOthersArrive) {
  std::atomic<int> come = 0;
  gpus().before_copies([&](Way way, std::size_t) { come += way == Way::down ? 1 : 0; });
  auto all = rooms_of(2);
  Case one = case_of(Collective::all_reduce, 2, count, 0);
  const DeviceVector<std::int32_t> there(one.input[0]);
  std::array<Member, 2> crew;
  const auto begin = [&](std::size_t m, const std::int32_t* input) {
    crew[m].plan = plan_of(one, static_cast<int>(m), 2);
    crew[m].call = {.plan = {std::shared_ptr<void>(), &crew[m].plan},
                    .input = input,
                    .output = one.output[m].data(),
                    .kernel = find_kernel(DataType::i32, ReduceOp::sum)};
    crew[m].work.begin(*all[m], all[m]->tuning(), crew[m].call, reinterpret_cast<const std::byte*>(input), 77,
                       node::AddressQueries::none);
  };
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
  begin(0, there.data());
  while (come < 2 && std::chrono::steady_clock::now() < limit) crew[0].work.advance({});
  EXPECT_EQ(come, 2);
  begin(1, one.input[1].data());
  while (!(crew[0].work.is_done() && crew[1].work.is_done())) {
    ASSERT_LT(std::chrono::steady_clock::now(), limit);
    for (Member& member : crew) member.work.advance({});
  }
  EXPECT_EQ(one.output, one.expected);
}

// From the buffer into the slot and from there into the buffer, and nothing else.
TEST_F(NodeDeviceCopies, CopyOnceDownAndOnceUp) {
  std::atomic<std::size_t> down = 0;
  std::atomic<std::size_t> up = 0;
  gpus().before_copies([&](Way way, std::size_t bytes) { (way == Way::down ? down : up) += bytes; });
  std::mt19937 random(33);
  auto all = rooms_of(3);
  for (int turn = 0; turn < 2; ++turn) {
    Case one = case_of(Collective::all_reduce, 3, count, 0);
    ASSERT_NO_FATAL_FAILURE(run_there(all, one, random, [](int) { return Lies{}; }));
    EXPECT_EQ(one.output, one.expected);
  }
  EXPECT_EQ(down, 2 * 3 * count * sizeof(std::int32_t));
  EXPECT_EQ(up, 2 * 3 * count * sizeof(std::int32_t));
  EXPECT_EQ(gpus().pinnings(), 0);
  EXPECT_EQ(gpus().pinned_places(), 1) << "all have the same memory";
  all.pop_back();
  EXPECT_EQ(gpus().pinned_places(), 1);
  all.clear();
  EXPECT_EQ(gpus().pinned_places(), 0);
}

TEST_F(NodeDeviceCopies, WorkWithoutPinnedMemory) {
  std::mt19937 random(34);
  auto all = rooms_of(2);
  FakeGpus::refuse_to_pin(true);
  Case one = case_of(Collective::all_reduce, 2, count, 0);
  ASSERT_NO_FATAL_FAILURE(run_there(all, one, random, [](int) { return Lies{}; }));
  FakeGpus::refuse_to_pin(false);
  EXPECT_EQ(one.output, one.expected);
  EXPECT_EQ(gpus().pinned_places(), 0);
}

// Sums that no slot has room for wait in pinned memory, which is given back.
TEST_F(NodeDeviceCopies, KeepFewPartsOfASum) {
  std::mt19937 random(35);
  auto all = rooms_of(2);
  for (int turn = 0; turn < 5; ++turn) {
    Case one = case_of(Collective::scan, 2, 10 * count, 0);
    ASSERT_NO_FATAL_FAILURE(run_there(all, one, random, [](int) { return Lies{}; }));
    EXPECT_EQ(one.output, one.expected);
  }
  EXPECT_LE(gpus().pinnings(), 2);
}

}  // namespace
}  // namespace lockstep::test
