// SPDX-License-Identifier: Apache-2.0
// Which ranks share cores, by the kernels of their machines.
#include "tools/lockstep/shared_cores.hpp"

#include <gtest/gtest.h>

#include "tests/topology/shapes.hpp"

namespace lockstep::command {
namespace {

using test::made_of;
using test::shape;

TEST(SharedCores, NodesOfOneKernelShareTheirs) {
  const MachineShape machine = shape({.packages = 1, .numas = 1, .cores = 2, .threads = 1});
  const Topology two = made_of({machine}, {{0, {{0, 1}, {0, 1}}}, {0, {{0, 1}, {0, 1}, {0, 1}}}});
  const SharedCores apart = most_shared_cores(two, {"a", "a", "b", "b", "b"});
  EXPECT_EQ(apart.what(), "3 ranks on 2 cores of one machine");
  EXPECT_TRUE(apart.crowded());
  EXPECT_FALSE(most_shared_cores(two, {"a", "b", "c", "d", "e"}).crowded());
  EXPECT_EQ(most_shared_cores(two, {"a", "a", "a", "a", "a"}).what(), "5 ranks of 2 nodes on 2 cores of one machine");
}

TEST(SharedCores, CountWhereRanksAreBound) {
  const MachineShape machine = shape({.packages = 1, .numas = 1, .cores = 4, .threads = 2});
  const Topology bound = made_of({machine}, {{0, {{0, 1}, {4, 7}}}, {0, {{1, 1}, {4, 7}}}});
  const std::vector<std::string> one_kernel(4, "a");
  EXPECT_EQ(most_shared_cores(bound, one_kernel).what(), "2 ranks of 2 nodes on 1 core of one machine");
  const Topology free = made_of({machine}, {{0, {{0, 7}, {0, 7}}}, {0, {{0, 7}, {0, 7}}}});
  EXPECT_FALSE(most_shared_cores(free, one_kernel).crowded());
}

}  // namespace
}  // namespace lockstep::command
