// SPDX-License-Identifier: Apache-2.0
// What goes wrong on the way to a GPU's memory and back is said to all.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <string>

#include "collectives/gpu/memory.hpp"
#include "tests/collectives/fake_gpus.hpp"
#include "tests/collectives/members.hpp"

namespace lockstep::test {
namespace {

struct Fault {
  const char* name;
  int who;
  int copy;  // so many copies and launches go well before
  bool pinning;
  std::function<void(Communicator&, DeviceVector<int>&)> call;
};

std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }

void average(Communicator& world, DeviceVector<int>& there) { world.all_reduce(there, avg); }
void add(Communicator& world, DeviceVector<int>& there) { world.all_reduce(there, sum); }
// One of them has its data in the host's memory.
void add_mixed(Communicator& world, DeviceVector<int>& there) {
  std::vector<int> here(there.size());
  if (world.rank() == 2)
    world.all_reduce(here, sum);
  else
    world.all_reduce(there, sum);
}
void gather(Communicator& world, DeviceVector<int>& there) {
  DeviceVector<int> all(there.size() * static_cast<std::size_t>(world.size()));
  world.all_gather(there, all);
}

class FaultyGpu : public testing::TestWithParam<Fault> {
 private:
  gpu::Instead instead_{std::make_unique<FakeGpus>(2)};
};

INSTANTIATE_TEST_SUITE_P(Faults, FaultyGpu,
                         testing::Values(Fault{"copy_in", 1, 0, false, average},
                                         Fault{"copy_back", 1, 1, false, average},
                                         Fault{"pinning", 1, -1, true, average}, Fault{"launch", 0, 0, false, add},
                                         Fault{"mixed_copy_in", 1, 0, false, add_mixed},
                                         Fault{"mixed_copy_back", 1, 1, false, add_mixed},
                                         Fault{"mixed_pinning", 1, -1, true, add_mixed},
                                         Fault{"own_block", 1, 0, false, gather}, Fault{"block", 1, 2, false, gather}),
                         testing::PrintToStringParamName());

// A small call has gone well before; of three large ones the first fails on one member, and all hear which.
TEST_P(FaultyGpu, is_named_on_all) {
  const Fault& fault = GetParam();
  std::atomic<int> refused = 0;
  with_members(3, [&](Communicator& world) {
    DeviceVector<int> small(std::vector<int>(100));
    world.all_reduce(small, sum);
    DeviceVector<int> large(std::vector<int>(100'000));
    const bool is_mine = world.rank() == fault.who;
    try {
      world.barrier();  // out of which one may come to hear of the fault
      FakeGpus::fail_copy_after(is_mine ? fault.copy : -1);
      FakeGpus::fail_pinning(is_mine && fault.pinning);
      for (int turn = 0; turn < 3; ++turn) fault.call(world, large);
    } catch (const Error& error) {
      const std::string named = is_mine ? (fault.pinning ? "none left" : "fell off the bus") : text("rank ", fault.who);
      EXPECT_NE(std::string_view(error.what()).find(named), std::string_view::npos) << error.what();
      EXPECT_EQ(error.code(), is_mine ? (fault.pinning ? Code::out_of_memory : Code::device) : Code::peer_failed);
      EXPECT_TRUE(world.failed());
      ++refused;
    }
    FakeGpus::fail_copy_after(-1);
    FakeGpus::fail_pinning(false);
  });
  EXPECT_EQ(refused, 3);
}

}  // namespace
}  // namespace lockstep::test
