// SPDX-License-Identifier: Apache-2.0
// Devices by name, and where the threads of replicas are.
#include <algorithm>

#include "runtime/devices.hpp"

#include <gtest/gtest.h>
#include <sched.h>

#include "runtime/data/dataset.hpp"
#include "runtime/extended.hpp"
#include "tests/runtime/quick.hpp"
#include "tests/support/lacks.hpp"
#include "tests/support/refusal.hpp"
#include "topology/base/text.hpp"

namespace lockstep {
namespace {

using test::quick;
using test::refusal;

std::vector<int> bound_to() {
  cpu_set_t set;
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  std::vector<int> cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(static_cast<std::size_t>(cpu), &set)) cpus.push_back(cpu);
  }
  return cpus;
}

TEST(Devices, HaveNamesShortAndLong) {
  const DeviceName first{.type = "CPU", .index = 0};
  for (const char* words :
       {"cpu:0", "/cpu:0", "CPU:0", "/device:CPU:0", "device:cpu:0", "/job:localhost/replica:0/task:0/device:CPU:0"})
    EXPECT_EQ(parse_device(words), first) << words;
  EXPECT_EQ(to_string(first), "/job:localhost/replica:0/task:0/device:CPU:0");
  EXPECT_EQ(to_string(parse_device("/job:worker/task:1/device:GPU:3")), "/job:worker/replica:0/task:1/device:GPU:3");
}

TEST(Devices, ThatAreNoNamesAreRefused) {
  for (const char* words : {"", "cpu", "cpu:", "cpu:x", "cpu:-1", "tpu:0", "cpu:0:1", "/job:worker", "/job:/cpu:0",
                            "cpu:99999999999999999999", "/task:a/cpu:0", "cpu/0", "device/cpu/0", "/replica:7/cpu:0",
                            "/job:a/job:b/cpu:0", "/cpu:0/gpu:0", "device:cpu", "cpu:0/", "//cpu:0"})
    EXPECT_NE(refusal([&] { parse_device(words); }, Code::usage).find("write cpu:0"), std::string::npos) << words;
}

TEST(Devices, ThatExistAreListed) {
  const auto cpus = physical_devices("CPU");
  ASSERT_FALSE(cpus.empty());
  EXPECT_EQ(cpus.front(), "cpu:0");
  for (const std::string& each : physical_devices("gpu"))
    EXPECT_NE(refusal([&] { MirroredStrategy({each}, quick()); }, Code::device).find("so far"), std::string::npos);
  EXPECT_NE(refusal([] { physical_devices("tpu"); }, Code::usage).find("say cpu or gpu"), std::string::npos);
}

TEST(Devices, OfAStrategyAreItsReplicas) {
  const MirroredStrategy one({"cpu:0"}, quick());
  EXPECT_EQ(one.num_replicas_in_sync(), 1);
  EXPECT_EQ(one.devices(), std::vector<std::string>{"/job:localhost/replica:0/task:0/device:CPU:0"});
  const MirroredStrategy two(2, quick());
  EXPECT_EQ(two.devices()[1], "/job:localhost/replica:0/task:0/device:CPU:1");
  EXPECT_TRUE(two.explain().starts_with("MirroredStrategy with 2 replicas\n  replica 0 on /job:localhost"))
      << two.explain();
}

TEST(Devices, ThatAStrategyCannotHaveAreRefused) {
  const auto words = [](std::vector<std::string> devices, Code code = Code::usage) {
    return refusal([&] { MirroredStrategy(devices, quick()); }, code);
  };
  EXPECT_NE(words({"cpu:0", "/device:CPU:0"}).find("no duplicates allowed"), std::string::npos);
  EXPECT_NE(words({}).find("no devices"), std::string::npos);
  const std::string missing = words({"cpu:0", "cpu:100000"});
  EXPECT_NE(
      missing.find(
          "some requested devices of the strategy are not visible: /job:localhost/replica:0/task:0/device:CPU:100000"),
      std::string::npos)
      << missing;
  EXPECT_NE(missing.find("there are cpu:0"), std::string::npos) << missing;
  EXPECT_NE(words({"gpu:100000"}).find("not visible"), std::string::npos);
  EXPECT_NE(words({"/job:worker/task:1/cpu:0"}).find("it is not of this process"), std::string::npos);
}

TEST(Devices, AreSaidOnceWhenTheStrategyIsMade) {
  std::vector<std::string> lines;
  StrategyOptions options = quick();
  options.log = Log(LogLevel::notice, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const MirroredStrategy one(1, options);
  const MirroredStrategy two(2, options);
  const CentralStorageStrategy central(1, options);
  ASSERT_EQ(lines.size(), 3U);
  EXPECT_NE(lines[2].find("ParameterServerStrategy (CentralStorageStrategy if you are using a single machine) with "
                          "compute_devices = ['/job:localhost/replica:0/task:0/device:CPU:0'], "
                          "variable_device = '/job:localhost/replica:0/task:0/device:CPU:0'"),
            std::string::npos)
      << lines[2];
  EXPECT_NE(lines[0].find("Using MirroredStrategy with devices ('/job:localhost/replica:0/task:0/device:CPU:0',)"),
            std::string::npos)
      << lines[0];
  EXPECT_NE(lines[1].find("device:CPU:0', '/job:localhost/replica:0/task:0/device:CPU:1')"), std::string::npos);
  options.log = Log(LogLevel::warn, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const MirroredStrategy silent(2, options);
  EXPECT_EQ(lines.size(), 3U);
}

TEST(Devices, MatchPartialNames) {
  const DeviceName device{.job = "worker", .task = 1, .type = "CPU", .index = 2};
  for (const char* name : {"cpu:2", "/task:1/cpu:2", "/job:worker/device:CPU:2", "job:worker/replica:0/task:1/cpu:2"})
    EXPECT_TRUE(is_meant(name, device)) << name;
  for (const char* name : {"cpu:1", "gpu:2", "/task:0/cpu:2", "/job:localhost/cpu:2", "/job:worker/task:0/cpu:2"})
    EXPECT_FALSE(is_meant(name, device)) << name;
}

TEST(Devices, OfOtherStrategiesAreNamed) {
  const std::vector<std::string> all = physical_devices("cpu");
  const std::string last = all.back();
  const std::string whole = text("/job:localhost/replica:0/task:0/device:CPU:", all.size() - 1);
  OneDeviceStrategy one(last, quick());
  EXPECT_EQ(one.devices(), std::vector{whole});
  EXPECT_NE(one.explain().find(whole), std::string::npos);
  EXPECT_EQ(one.reduce("SUM", one.run([] { return 2; })), 2);
  {
    const Scope scope = one.scope();
    EXPECT_EQ(one.extended().devices_of(Variable(1.F)), std::vector{whole});
  }
  const CentralStorageStrategy central(std::vector{last}, quick());
  EXPECT_EQ(central.devices(), std::vector{whole});
  EXPECT_NE(refusal([] { OneDeviceStrategy("cpu:100000", quick()); }, Code::usage).find("there are cpu:0"),
            std::string::npos);
  EXPECT_NE(refusal(
                [] {
                  CentralStorageStrategy({"cpu:0", "cpu:0"}, quick());
                },
                Code::usage)
                .find("no duplicates"),
            std::string::npos);
}

TEST(Seats, AreLeftByThreadsThatPrepareData) {
  const std::vector<int> whole = bound_to();
  const std::size_t free = data::free_processors();
  MirroredStrategy one({"cpu:0"}, quick());
  const std::vector<int> replica = one.run([] { return bound_to(); })[0];
  if (replica == whole) GTEST_SKIP() << test::lacks("needs two cores");
  EXPECT_EQ(data::free_processors(), free - 1);
  std::vector<int> helper;
  {
    auto elements = data::range(9).map([&](std::int64_t x) { return helper = bound_to(), x; }).prefetch(9).open();
    while (elements.next()) continue;
  }
  std::vector<int> both;
  std::ranges::set_union(replica, helper, std::back_inserter(both));
  EXPECT_EQ(both, whole);
  EXPECT_EQ(both.size(), replica.size() + helper.size()) << "they share none";
}

TEST(Seats, AreKeptWhileReplicasWorkAndTheCallerIsFreeAgain) {
  const std::vector<int> before = bound_to();
  MirroredStrategy strategy(2, quick());
  const auto seats = strategy.run([] { return std::tuple(bound_to()); });
  EXPECT_EQ(bound_to(), before);
  if (before.size() < 2) GTEST_SKIP() << test::lacks("needs two processors");
  const auto& both = std::get<0>(seats);
  EXPECT_LT(both[0].size(), before.size());
  for (const int cpu : both[0]) EXPECT_EQ(std::ranges::count(both[1], cpu), 0) << "each has its own";
  MirroredStrategy free(2, {.wait_limits = quick().wait_limits, .log = Log(LogLevel::off), .pin = false});
  const auto anywhere = free.run([] { return std::tuple(bound_to()); });
  for (const auto& each : std::get<0>(anywhere).local()) EXPECT_EQ(each, before);
}

}  // namespace
}  // namespace lockstep
