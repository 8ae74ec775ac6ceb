// SPDX-License-Identifier: Apache-2.0
// What goes wrong on the way to a GPU's memory and back is said to all.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/gpu/with_gpus.hpp"
#include "tests/support/holds.hpp"

namespace lockstep::test {
namespace {

enum class What : std::uint8_t { copy, copy_under_way, pinning };

struct Fault {
  const char* name;
  int who;
  int copy;  // so many copies and launches go well before
  What what;
  std::function<void(Communicator&, DeviceVector<int>&)> call;
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }

// By the processors.
const auto own_sum = commutative([](int a, int b) { return a + b; });
void add_here(Communicator& world, DeviceVector<int>& there) { world.all_reduce(there, own_sum); }
void average(Communicator& world, DeviceVector<int>& there) { world.all_reduce(there, avg); }
void weigh(Communicator& world, DeviceVector<int>& there) { world.all_reduce(there, premul_sum(world.rank())); }
void add(Communicator& world, DeviceVector<int>& there) { world.all_reduce(there, sum); }
// One of them has its data in the host's memory.
void add_mixed(Communicator& world, DeviceVector<int>& there) {
  std::vector<int> here(there.size());
  if (world.rank() == 2)
    world.all_reduce(here, sum);
  else
    world.all_reduce(there, sum);
}
void add_blocks(Communicator& world, DeviceVector<int>& there) {
  DeviceVector<int> block(there.size() / static_cast<std::size_t>(world.size()));
  world.reduce_scatter(there, block, own_sum);
}
void average_blocks(Communicator& world, DeviceVector<int>& there) {
  DeviceVector<int> block(there.size() / static_cast<std::size_t>(world.size()));
  world.reduce_scatter(there, block, avg);
}
void add_columns(Communicator& world, DeviceVector<int>& there) {
  world.all_reduce(StridedBuffer<int>{there.data(), there.size() / 2, 2}, sum);
}
void gather(Communicator& world, DeviceVector<int>& there) {
  DeviceVector<int> all(there.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(there, all);
}

class FaultyGpu : public WithGpus<2>, public testing::WithParamInterface<Fault> {};

INSTANTIATE_TEST_SUITE_P(
    Faults, FaultyGpu,
    testing::Values(Fault{"copy_in", 1, 0, What::copy, add_here}, Fault{"a_later_copy", 1, 7, What::copy, add_here},
                    Fault{"copy_under_way", 1, 0, What::copy_under_way, add_here},
                    Fault{"a_later_copy_under_way", 1, 7, What::copy_under_way, add_here},
                    Fault{"pinning", 1, -1, What::pinning, add_blocks},
                    Fault{"columns_pinning", 1, -1, What::pinning, add_columns},
                    Fault{"columns_copy_back", 1, 1, What::copy, add_columns}, Fault{"launch", 0, 0, What::copy, add},
                    Fault{"launch_that_divides", 0, 0, What::copy, average},
                    Fault{"launch_that_multiplies", 0, 1, What::copy, weigh},
                    Fault{"launch_for_a_block", 1, 0, What::copy, average_blocks},
                    Fault{"mixed_copy_in", 1, 0, What::copy, add_mixed},
                    Fault{"mixed_later_copy", 1, 7, What::copy, add_mixed},
                    Fault{"mixed_later_copy_under_way", 0, 8, What::copy_under_way, add_mixed},
                    Fault{"own_block", 1, 0, What::copy, gather}, Fault{"block", 1, 2, What::copy, gather}),
    testing::PrintToStringParamName());

// A small call has gone well before; of three large ones the first fails on one member, and all hear which.
TEST_P(FaultyGpu, IsNamedOnAll) {
  const Fault& fault = GetParam();
  std::atomic<int> refused = 0;
  with_members(3, [&](Communicator& world) {
    DeviceVector<int> small(std::vector<int>(100));
    world.all_reduce(small, sum);
    DeviceVector<int> large(std::vector<int>(300'000));
    const bool is_mine = world.rank() == fault.who;
    const bool is_pinning = fault.what == What::pinning;
    try {
      world.barrier();  // out of which one may come to hear of the fault
      FakeGpus::fail_copy_after(is_mine && fault.what == What::copy ? fault.copy : -1);
      FakeGpus::break_copy_after(is_mine && fault.what == What::copy_under_way ? fault.copy : -1);
      FakeGpus::fail_pinning(is_mine && is_pinning);
      for (int turn = 0; turn < 3; ++turn) fault.call(world, large);
    } catch (const Error& error) {
      const std::string named = is_mine ? (is_pinning ? "none left" : "fell off the bus") : text("rank ", fault.who);
      EXPECT_NE(std::string_view(error.what()).find(named), std::string_view::npos) << error.what();
      EXPECT_EQ(error.code(), is_mine ? (is_pinning ? Code::out_of_memory : Code::device) : Code::peer_failed);
      EXPECT_TRUE(world.failed());
      ++refused;
    }
    FakeGpus::fail_copy_after(-1);
    FakeGpus::break_copy_after(-1);
    FakeGpus::fail_pinning(false);
  });
  EXPECT_EQ(refused, 3);
}

// Nobody waits longer than the limit, and what the copy may still touch stays.
TEST(StuckGpu, IsNamedAtTheLimit) {
  gpu::BackendOverride instead(std::make_unique<FakeGpus>(1));
  auto& gpus = static_cast<FakeGpus&>(instead.backend());
  std::atomic<bool> is_first = true;
  std::atomic<bool> is_held = false;
  std::atomic<bool> is_over = false;
  std::atomic<int> refused = 0;
  with_members(2, [&](Communicator& world) {
    std::vector<int> here(300'000);
    DeviceVector<int> there(here);
    const bool is_mine = world.rank() == 1;
    world.barrier();
    if (is_mine) {
      gpus.before_copies([&](FakeGpus::Way way, std::size_t) {
        if (way != FakeGpus::Way::up || !is_first.exchange(false)) return;
        is_held = true;
        const auto longest = std::chrono::steady_clock::now() + std::chrono::seconds(5);
        while (!is_over && std::chrono::steady_clock::now() < longest) std::this_thread::yield();
        is_held = false;
        throw Error(Code::device, "the memory is another's by now");
      });
      world.set_timeout(std::chrono::milliseconds(300));
    }
    try {
      if (is_mine)
        world.all_reduce(there, sum);
      else
        world.all_reduce(here, sum);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), is_mine ? Code::stall : Code::peer_failed);
      EXPECT_PRED2(holds, error.what(), "for copies from or to its GPU");
      ++refused;
    }
  });
  EXPECT_EQ(refused, 2);
  EXPECT_EQ(gpus.pinned_places(), 1) << "where the copy reads";
  is_over = true;
  while (is_held) std::this_thread::yield();
  gpus.before_copies({});
}

}  // namespace
}  // namespace lockstep::test
