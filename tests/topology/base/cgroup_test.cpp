// SPDX-License-Identifier: Apache-2.0
// What control groups of both versions grant and take, read from folders that stand for a machine's root.
#include "topology/base/cgroup.hpp"

#include <gtest/gtest.h>

#include "tests/support/folder.hpp"

namespace lockstep {
namespace {

using test::Folder;

TEST(Cgroup, QuotasOfBothVersions) {
  EXPECT_EQ(parse_cpu_max("250000 100000"), 2.5);
  for (const char* none : {"max 100000", "", "x y", "0 100000", "100000", "-1 100000", "1 0"})
    EXPECT_EQ(parse_cpu_max(none), std::nullopt) << none;
  const Folder v2;
  v2.write("proc/self/cgroup", "0::/job/step\n");
  v2.write("sys/fs/cgroup/job/step/cpu.max", "max 100000\n");
  v2.write("sys/fs/cgroup/job/cpu.max", "150000 100000\n");
  EXPECT_EQ(cpu_quota(v2.path().string()), 1.5);
  const Folder v1;
  v1.write("proc/self/cgroup", "4:memory:/other\n3:cpuacct,cpu:/job\n");
  v1.write("sys/fs/cgroup/cpu/job/cpu.cfs_quota_us", "50000\n");
  v1.write("sys/fs/cgroup/cpu/job/cpu.cfs_period_us", "100000\n");
  v1.write("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  v1.write("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(cpu_quota(v1.path().string()), 0.5);
  // In a container the path of the host is not there, but the mount is the container's own group.
  const Folder inside;
  inside.write("proc/self/cgroup", "0::/../../kubepods/x\n");
  inside.write("sys/fs/cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(cpu_quota(inside.path().string()), 2);
  EXPECT_EQ(cpu_quota(Folder().path().string()), std::nullopt);
}

TEST(Cgroup, TheLongestStopCountsInBothVersions) {
  const Folder v2;
  EXPECT_EQ(throttled_us(v2.path().string()), 0);
  v2.write("proc/self/cgroup", "0::/job/step\n");
  v2.write("sys/fs/cgroup/job/step/cpu.stat", "usage_usec 5\nnr_throttled 2\nthrottled_usec 300\n");
  v2.write("sys/fs/cgroup/job/cpu.stat", "usage_usec 5\nnr_throttled 9\nthrottled_usec 7000\n");
  EXPECT_EQ(throttled_us(v2.path().string()), 7000);
  const Folder v1;
  v1.write("proc/self/cgroup", "3:cpuacct,cpu:/job\n");
  v1.write("sys/fs/cgroup/cpu/job/cpu.stat", "nr_periods 10\nnr_throttled 1\nthrottled_time 2500000\n");
  EXPECT_EQ(throttled_us(v1.path().string()), 2500) << "version 1 counts nanoseconds";
}

TEST(Cgroup, FreeMemoryIsTheLeastOfTheSystemAndAllGroups) {
  const Folder root;
  const auto free = [&] { return free_memory_bytes(root.path().string()); };
  EXPECT_EQ(free(), unlimited_bytes) << "nothing is known";
  root.write("proc/meminfo", "MemTotal: 9000 kB\nMemAvailable:    8000 kB\n");
  EXPECT_EQ(free(), 8000U * 1024);
  root.write("proc/self/cgroup", "4:memory:/old\n0::/a/b\n");
  root.write("sys/fs/cgroup/a/b/memory.max", "max\n");
  EXPECT_EQ(free(), 8000U * 1024);
  root.write("sys/fs/cgroup/a/memory.max", "1000000\n");
  root.write("sys/fs/cgroup/a/memory.current", "400000\n");
  EXPECT_EQ(free(), 600'000U);
  root.write("sys/fs/cgroup/memory/old/memory.limit_in_bytes", "5000\n");
  root.write("sys/fs/cgroup/memory/old/memory.usage_in_bytes", "7000\n");
  EXPECT_EQ(free(), 0U);
}

}  // namespace
}  // namespace lockstep
