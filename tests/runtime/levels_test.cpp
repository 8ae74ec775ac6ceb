// SPDX-License-Identifier: Apache-2.0
// Who meets first, on machines that are not here.
#include "runtime/levels.hpp"

#include <gtest/gtest.h>

namespace lockstep::detail {
namespace {

using Groups = std::vector<int>;

TEST(Levels, are_those_of_the_machine_that_bring_somebody_together) {
  // Two packages of two L3 caches of two cores of two threads: eight replicas of a core each.
  std::vector<Span> replicas;
  for (int i = 0; i < 8; ++i) replicas.push_back({.core = i, .l2 = i, .l3 = i / 2, .numa = i / 4, .package = i / 4});
  EXPECT_EQ(levels_of(replicas), (std::vector<Level>{{"L3 cache", Groups{0, 0, 2, 2, 4, 4, 6, 6}},
                                                     {"NUMA node", Groups{0, 0, 0, 0, 4, 4, 4, 4}},
                                                     {"process", Groups(8, 0)}}));
}

TEST(Levels, nest_where_the_machine_does_not) {
  // A cache over two NUMA nodes, and replicas that are on hardware threads of one core.
  EXPECT_EQ(levels_of({{.core = 0, .l3 = 0, .numa = 0, .package = 0},
                       {.core = 0, .l3 = 0, .numa = 0, .package = 0},
                       {.core = 1, .l3 = 0, .numa = 1, .package = 0},
                       {.core = 2, .l3 = 1, .numa = 1, .package = 0}}),
            (std::vector<Level>{
                {"core", Groups{0, 0, 2, 3}}, {"L3 cache", Groups{0, 0, 0, 3}}, {"NUMA node", Groups{0, 0, 0, 0}}}));
}

TEST(Levels, of_replicas_that_are_anywhere_are_one) {
  EXPECT_EQ(levels_of({Span{}, Span{}, Span{}}), (std::vector<Level>{{"process", Groups{0, 0, 0}}}));
  EXPECT_EQ(levels_of({Span{.core = 3, .package = 0}, Span{}}), (std::vector<Level>{{"process", Groups{0, 0}}}));
  EXPECT_TRUE(levels_of({Span{.core = 1}}).empty());
  EXPECT_TRUE(levels_of({}).empty());
}

}  // namespace
}  // namespace lockstep::detail
