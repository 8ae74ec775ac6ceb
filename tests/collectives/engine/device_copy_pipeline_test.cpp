// SPDX-License-Identifier: Apache-2.0
// Data in a GPU's memory, of calls that go by messages: pieces come as rounds need them, and go when no round will
// write them any more. (By messages, or among members of several nodes, whatever LOCKSTEP_NODE_MEMORY says.)
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>

#include "collectives/engine/device_copy_pipeline.hpp"
#include "tests/collectives/communicator/gpu_level_cases.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/communicator/random_case.hpp"
#include "tests/collectives/gpu/with_gpus.hpp"

namespace lockstep::test {
namespace {

using Way = FakeGpus::Way;

// Pieces of 64 elements.
constexpr gpu::DeviceCosts tiny = {.launch = {1, 1}, .copy = {1, 1}, .down = {1, 4'000'000}, .up = {1, 4'000'000}};
constexpr std::size_t piece = 64;

class DeviceCopyPipelineTest : public WithGpus<2> {
 protected:
  DeviceCopyPipelineTest() { gpus().take(tiny); }
};

void by_messages(int members, const std::function<void(Communicator&)>& body, const std::string& algorithm = {}) {
  with_members(members, body, {.node_memory = false, .algorithm = algorithm});
}

TEST(GpuPiece, IsLargeEnoughForTheCostOfACopy) {
  const auto of = [](gpu::LinearCost down, gpu::LinearCost up) {
    return device_piece_bytes({.down = down, .up = up}, 4);
  };
  EXPECT_EQ(of({1, 4'000'000}, {1, 4'000'000}), 256U);
  EXPECT_EQ(of({8000, 32'000}, {8000, 32'000}), 1U << 20U);
  EXPECT_EQ(of({8000, 32'000}, {8000, 64'000}), 1U << 19U);
  EXPECT_EQ(of({0, 0}, {0, 0}), 64U << 20U);  // that was not measured
  EXPECT_EQ(of({0, 1}, {0, 1}), 256U);
  EXPECT_EQ(of({4'000'000'000, 1}, {1, 1}), 64U << 20U);
}

// Every collective, with copies that take their time, another time each.
TEST_F(DeviceCopyPipelineTest, IsRightWithCopiesOfAnyDuration) {
  std::atomic<unsigned> drawn = 0;
  gpus().before_copies([&](Way, std::size_t) {
    std::this_thread::sleep_for(std::chrono::microseconds((drawn.fetch_add(1) * 7919 % 11) * 20));
  });
  for (const bool in_nodes : {false, true}) {
    EXPECT_TRUE(rc::check("drawn calls", [in_nodes] {
      RandomCase each = *random_case(6, false);
      if (in_nodes) each.nodes = {each.members - each.members / 2};
      if (in_nodes && each.members > 1) each.nodes.push_back(each.members / 2);
      std::mutex mutex;
      std::string wrong;
      CommunicatorOptions options{.node_memory = in_nodes};
      const auto topology = each.topology();
      run_members(
          topology ? topology : local_topology(each.members),
          [&](Communicator& world) {
            for (int turn = 0; turn < 2; ++turn) {
              const std::string mine = run_case(world, each);
              const std::lock_guard lock(mutex);
              if (!mine.empty()) wrong = mine;
            }
          },
          options, short_limits, Log(LogLevel::error));
      if (!wrong.empty()) RC_FAIL(wrong);
    }));
  }
}

// The first piece of the result is held on its way to the GPU until all of the input has come; and the last piece of
// the input on its way from there until something of the result has gone.
TEST_F(DeviceCopyPipelineTest, PiecesGoWhileOthersCome) {
  constexpr int members = 2;
  constexpr std::size_t count = 40 * piece;
  for (const std::string algorithm : {"ring", "rabenseifner"}) {
    std::atomic<int> come = 0;
    std::atomic<int> gone = 0;
    std::atomic<bool> in_time = true;
    gpus().before_copies([&](Way way, std::size_t) {
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(5);
      const bool is_last = way == Way::down && ++come == 40 * members;
      if (way == Way::up) ++gone;
      while (is_last && gone == 0 && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
      in_time = in_time && (!is_last || gone > 0);
    });
    // In segments, as members of several nodes would have it: the second begins when the first has ended.
    const std::string table = text("all_reduce 2 * * ", algorithm, ' ', count * sizeof(int) / 4, " a test\n");
    with_members(members,
                 [&](Communicator& world) {
                   const DeviceVector<int> in(counting(count, world.rank()));
                   DeviceVector<int> out(count);
                   world.all_reduce(in, out, sum);
                   EXPECT_EQ(on_host(out)[count - 1], 2 * static_cast<int>(count - 1) + 1);
                 },
                 {.node_memory = false, .table = table});
    EXPECT_TRUE(in_time) << algorithm;
    EXPECT_EQ(come, 40 * members);
    EXPECT_EQ(gone, 40 * members);
  }
}

// Each piece once, whatever the operation does to it on the way.
TEST_F(DeviceCopyPipelineTest, IsCopiedOnceDownAndOnceUp) {
  std::atomic<std::size_t> down = 0;
  std::atomic<std::size_t> up = 0;
  gpus().before_copies([&](Way way, std::size_t bytes) { (way == Way::down ? down : up) += bytes; });
  constexpr std::size_t count = 10 * piece + 5;
  const auto each_way = [&](const auto& call) {
    down = up = 0;
    by_messages(3, [&](Communicator& world) {
      DeviceVector<int> data(counting(count, world.rank()));
      call(world, data);
    });
    return std::pair(down / sizeof(int), up / sizeof(int));
  };
  const std::pair<std::size_t, std::size_t> all{3 * count, 3 * count};
  EXPECT_EQ(each_way([](Communicator& world, DeviceVector<int>& data) {
              world.all_reduce(data, sum);
              EXPECT_EQ(on_host(data)[7], 3 * 7 + 3);
            }),
            all);
  EXPECT_EQ(each_way([](Communicator& world, DeviceVector<int>& data) {
              world.all_reduce(data, avg);
              EXPECT_EQ(on_host(data), counting(count, 1));
            }),
            all);
  EXPECT_EQ(each_way([](Communicator& world, DeviceVector<int>& data) {
              world.all_reduce(data, premul_sum(2.0));
              EXPECT_EQ(on_host(data)[7], 6 * 7 + 6);
            }),
            all);
  EXPECT_EQ(each_way([](Communicator& world, DeviceVector<int>& data) { world.broadcast(data, 1); }),
            (std::pair<std::size_t, std::size_t>{count, 2 * count}));
  EXPECT_EQ(each_way([](Communicator& world, DeviceVector<int>& data) {
              DeviceVector<int> sums(world.rank() == 2 ? count : 0);
              world.reduce(data, sums, sum, 2);
            }),
            (std::pair<std::size_t, std::size_t>{3 * count, count}));
}

TEST_F(DeviceCopyPipelineTest, PlansReadTheirDataAtEachStart) {
  by_messages(3, [](Communicator& world) {
    constexpr std::size_t count = 7 * piece;
    DeviceVector<int> in(count);
    DeviceVector<int> out(count);
    auto plan = world.plan_all_reduce(in, out, avg);
    for (int turn = 0; turn < 3; ++turn) {
      in.copy_from(counting(count, turn * 10 + world.rank()));
      plan.run();
      EXPECT_EQ(on_host(out), counting(count, turn * 10 + 1));
    }
    // Several at once.
    DeviceVector<int> other(counting(count, world.rank()), 1);
    auto first = world.all_reduce_async(in, out, max);
    auto second = world.all_reduce_async(other, min);
    second.wait();
    first.wait();
    EXPECT_EQ(on_host(out), counting(count, 22));
    EXPECT_EQ(on_host(other), counting(count, 0));
  });
}

// What lies between the blocks that a call writes is left as it is.
TEST_F(DeviceCopyPipelineTest, GapsStay) {
  by_messages(3, [](Communicator& world) {
    constexpr std::size_t each = 3 * piece + 1;
    const std::vector<std::size_t> counts(3, each);
    const std::vector<std::size_t> offsets{2 * each + 2 * piece, each + piece, 0};
    const DeviceVector<int> in(counting(each, 1000 * world.rank()));
    const std::vector<int> before(4 * each + 2 * piece, -7);
    DeviceVector<int> out(before);
    world.all_gather_v(in, out, counts, offsets);
    std::vector<int> right = before;
    for (std::size_t i = 0; i < 3; ++i)
      std::ranges::copy(counting(each, 1000 * static_cast<int>(i)),
                        right.begin() + static_cast<std::ptrdiff_t>(offsets[i]));
    EXPECT_EQ(on_host(out), right);
  });
}

// Held on its way: who waits for it says that it is a copy, and what it touches when it goes on is still nobody else's.
TEST_F(DeviceCopyPipelineTest, ACopyThatDoesNotEndIsNamed) {
  constexpr std::size_t count = 20 * piece;
  std::atomic<bool> is_first = true;
  std::atomic<bool> is_held = false;
  std::atomic<bool> is_over = false;
  gpus().before_copies([&](Way way, std::size_t) {
    if (way != Way::down || !is_first.exchange(false)) return;
    is_held = true;
    const auto longest = std::chrono::steady_clock::now() + std::chrono::seconds(10);
    while (!is_over && std::chrono::steady_clock::now() < longest) std::this_thread::yield();
    is_held = false;
  });
  const auto in = std::make_unique<DeviceVector<int>>(counting(count, 5));
  std::atomic<int> refused = 0;
  by_messages(2, [&](Communicator& world) {
    const bool is_mine = world.rank() == 1;
    if (is_mine) world.set_timeout(std::chrono::milliseconds(300));
    std::vector<int> out(count);
    try {
      if (is_mine)
        world.all_reduce(*in, out, sum);
      else
        world.all_reduce(counting(count, 0), out, sum);
      ADD_FAILURE() << "it ended";
    } catch (const Error& error) {
      const std::string_view part = is_mine ? "for copies from its GPU" : "rank 1";
      EXPECT_NE(std::string_view(error.what()).find(part), std::string_view::npos) << error.what();
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
  ASSERT_TRUE(is_held);
  const auto others = gpu::backend()->pinned(count * sizeof(int));
  std::memset(others.get(), 0x11, count * sizeof(int));
  is_over = true;
  while (is_held) std::this_thread::yield();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto* const bytes = reinterpret_cast<const unsigned char*>(others.get());
  EXPECT_TRUE(std::all_of(bytes, bytes + count * sizeof(int), [](unsigned char each) { return each == 0x11; }));
}

}  // namespace
}  // namespace lockstep::test
