// SPDX-License-Identifier: Apache-2.0
// Which way data on GPUs goes follows from what the GPU was measured to take.
#include "collectives/node/gpu_benefit.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <iostream>

#include "collectives/plan.hpp"
#include "tests/collectives/communicator/members.hpp"
#include "tests/collectives/gpu/stream_order.hpp"
#include "tests/collectives/gpu/with_gpus.hpp"
#include "tests/support/lacks.hpp"

namespace lockstep::test {
namespace {

using gpu::DeviceCosts;
using gpu::LinearCost;

// What is begun on it takes long, and what goes by the host takes little, unless it is much.
constexpr DeviceCosts slow_to_begin{
    .launch = {5'000'000, 1000}, .copy = {5'000'000, 1000}, .down = {1000, 40'000'000}, .up = {1000, 40'000'000}};

class GpuWays : public WithGpus<2> {};

// But for what rounding takes.
void expect_about(const DeviceCosts& found, const DeviceCosts& right) {
  for (LinearCost DeviceCosts::*const cost :
       {&DeviceCosts::launch, &DeviceCosts::copy, &DeviceCosts::down, &DeviceCosts::up}) {
    for (std::uint32_t LinearCost::*const number : {&LinearCost::ns, &LinearCost::ns_per_mib})
      EXPECT_NEAR(found.*cost.*number, right.*cost.*number, 2);
  }
}

TEST_F(GpuWays, AreMeasuredOnce) {
  const DeviceCosts costs{.launch = {3000, 700}, .copy = {500, 1400}, .down = {8000, 41'000}, .up = {7000, 42'000}};
  gpus().take(costs);
  expect_about(gpus().costs(1), costs);
  EXPECT_EQ(gpus().costs(1), gpus().costs(1));
  EXPECT_EQ(gpus().measurings(), 1);
  gpus().take(slow_to_begin);
  expect_about(gpus().costs(0), slow_to_begin);  // each GPU has its own
  EXPECT_EQ(gpus().living(), 0U);
  EXPECT_EQ(gpus().launches() + gpus().copies() + gpus().pinnings(), 0);
}

// Then it costs nothing there, and the error is of the call that needs it.
TEST_F(GpuWays, AreNotMeasuredWhereMeasuringFails) {
  gpus().fail_measuring();
  EXPECT_EQ(gpus().costs(0), DeviceCosts{});
  EXPECT_EQ(gpus().costs(0), DeviceCosts{});
  EXPECT_EQ(gpus().measurings(), 1);
  EXPECT_TRUE(node::is_faster_on_gpus({.collective = Collective::all_gather, .element_bytes = 4, .count = 1}, 8,
                                      DeviceCosts{}));
}

// With no GPU nothing is to be measured, and what is measured of one is more than nothing.
TEST(RealGpuWays, TakeTheirTime) {
  if (gpu::backend() == nullptr) GTEST_SKIP() << lacks("needs a GPU; " + gpu::why_none());
  const DeviceCosts costs = gpu::backend()->costs(0);
  for (const auto& [name, cost] : {std::pair("launch", costs.launch), std::pair("copy", costs.copy),
                                   std::pair("down", costs.down), std::pair("up", costs.up)}) {
    EXPECT_GT(cost.ns, 500U) << name;
    EXPECT_LT(cost.ns, 10'000'000U) << name;
    std::cout << name << ": " << cost.ns << " ns and " << cost.ns_per_mib << " ns for each MiB more\n";
  }
}

// The smallest block, in powers of two, from which on it pays; 2^40: never.
std::size_t pays_from(Collective collective, int members, const DeviceCosts& costs) {
  std::size_t from = std::size_t{1} << 40U;
  while (from > 1 &&
         node::is_faster_on_gpus({.collective = collective, .element_bytes = 1, .count = from / 2}, members, costs))
    from /= 2;
  return from;
}

TEST(GpuWaysTable, FollowTheCostsAndTheSize) {
  constexpr DeviceCosts usual{
      .launch = {8000, 700}, .copy = {7000, 1400}, .down = {9000, 41'000}, .up = {9000, 42'000}};
  EXPECT_EQ(pays_from(Collective::all_reduce, 8, usual), 1U) << "one launch, or two copies";
  EXPECT_EQ(pays_from(Collective::broadcast, 8, usual), 1U);
  // n copies, or two: 7 * 8 - 18 us are saved when 8 + 64 blocks have gone up and down at about 0.04 us a KiB.
  EXPECT_EQ(pays_from(Collective::all_gather, 8, usual), std::size_t{1} << 14U);
  EXPECT_EQ(pays_from(Collective::all_gather, 2, usual), 1U);
  EXPECT_GT(pays_from(Collective::gather, 8, usual), pays_from(Collective::all_gather, 8, usual));
  // Those that reduce: 5 ms are a launch, 0.08 us a byte of a member's down and up.
  EXPECT_EQ(pays_from(Collective::all_reduce, 4, slow_to_begin), 16384U);
  EXPECT_EQ(pays_from(Collective::reduce_scatter, 4, slow_to_begin), 8192U);
  constexpr DeviceCosts fast_host{.launch = {8000, 700}, .copy = {7000, 1400}, .down = {100, 10}, .up = {100, 10}};
  EXPECT_EQ(pays_from(Collective::all_reduce, 4, fast_host), std::size_t{1} << 40U);
}

TEST(GpuWaysTable, DoNotWrapAround) {
  constexpr LinearCost most{0xffffffffU, 0xffffffffU};
  EXPECT_GT(most.of(~std::uint64_t{0}), most.of(1U << 30U));
}

TEST_F(GpuWays, AreTakenByThreadsOfOneProcess) {
  gpus().take(slow_to_begin);
  std::atomic<int> by_host = 0;
  gpus().before_copies([&](FakeGpus::Way way, std::size_t) { by_host += way == FakeGpus::Way::down ? 1 : 0; });
  with_members(3, [&](Communicator& world) {
    const auto sum_up = [&](std::size_t count) {
      DeviceVector<int> there(std::vector<int>(count, world.rank() + 1), 1);
      world.all_reduce(there, sum);
      std::vector<int> here(count);
      there.copy_to(here);
      EXPECT_EQ(here, std::vector<int>(count, 6));
      world.barrier();
    };
    sum_up(1500);
    EXPECT_EQ(gpus().launches(), 0) << "6000 bytes are copied down and up sooner";
    EXPECT_EQ(gpus().pinned_places(), 1) << "through the node's memory";
    world.barrier();
    sum_up(100'000);
    EXPECT_EQ(gpus().launches(), 1);
  });
  EXPECT_EQ(gpus().measurings(), 1);
  EXPECT_EQ(by_host, 3);
}

// There the other way would have the host wait for what is in the stream. Where it has to wait anyway, as for a
// member's data on the host, the shorter way is taken.
TEST_F(GpuWays, AreNotWeighedByCallsInStreamsThatNoHostWaitsFor) {
  if (!node_memory()) GTEST_SKIP() << lacks("needs members who share memory");
  gpus().take(slow_to_begin);
  std::atomic<int> by_host = 0;
  gpus().before_copies([&](FakeGpus::Way way, std::size_t) { by_host += way == FakeGpus::Way::down ? 1 : 0; });
  const auto calls = [&](Communicator& world) {
    const OwnStream stream(gpus());
    NumbersThere there(Numbers(1500, world.rank() + 1));
    Gate gate;
    gate.hold(stream);
    world.on(stream.get()).all_reduce(there, sum);
    world.barrier();
    EXPECT_EQ(gpus().launches(), 1);
    gate.open();
    stream.wait();
    EXPECT_EQ(on_host(there), Numbers(1500, 6));
    EXPECT_EQ(by_host, 0);
    EXPECT_EQ(gpus().measurings(), 0);
    world.barrier();
    Numbers here(1500, 1);
    NumbersThere all(4500);
    stream.put([&] {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      there.copy_from(Numbers(1500, 1));
    });
    world.on(stream.get()).all_gather(world.rank() == 1 ? std::span(here) : there.span(), all);
    stream.wait();
    EXPECT_EQ(on_host(all), Numbers(4500, 1));
  };
  with_members(3, calls, {.timeout = std::chrono::seconds(20)});
  EXPECT_EQ(by_host, 2);
  EXPECT_EQ(gpus().measurings(), 1);
}

TEST_F(GpuWays, NeedNoMeasuringForDataOnTheHost) {
  with_members(3, [&](Communicator& world) {
    std::vector<int> here(100'000, 1);
    world.all_reduce(here, sum);
  });
  EXPECT_EQ(gpus().measurings(), 0);
}

}  // namespace
}  // namespace lockstep::test
