// SPDX-License-Identifier: Apache-2.0
// Who meets first, on machines that are not here.
#include "runtime/replica_levels.hpp"

#include <gtest/gtest.h>

#include "runtime/replica_seats.hpp"

namespace lockstep::detail {
namespace {

using Groups = std::vector<int>;

TEST(Seats, AreToldFromReplicasAndMembers) {
  const ReplicaSeats seats(3, 4);
  EXPECT_EQ(seats.replicas(), 3);
  ASSERT_EQ(seats.count(), 3);
  for (int replica = 0; replica < seats.replicas(); ++replica) {
    for (const int seat : seats.seats_of(replica)) EXPECT_EQ(seats.replica_of(seat), replica);
    EXPECT_EQ(seats.member_of(seats.main_seat_of(replica)), 4 + replica);
  }
}

TEST(Levels, AreThoseOfTheMachineThatBringSomebodyTogether) {
  // Two packages of two L3 caches of two cores of two threads: eight replicas of a core each.
  std::vector<SharedUnits> replicas;
  for (int i = 0; i < 8; ++i) replicas.push_back({.core = i, .l2 = i, .l3 = i / 2, .numa = i / 4, .package = i / 4});
  EXPECT_EQ(replica_levels(replicas), (std::vector<ReplicaLevel>{{"L3 cache", Groups{0, 0, 2, 2, 4, 4, 6, 6}},
                                                                 {"NUMA node", Groups{0, 0, 0, 0, 4, 4, 4, 4}},
                                                                 {"process", Groups(8, 0)}}));
}

TEST(Levels, NestWhereTheMachineDoesNot) {
  // A cache over two NUMA nodes, and replicas that are on hardware threads of one core.
  EXPECT_EQ(replica_levels({{.core = 0, .l3 = 0, .numa = 0, .package = 0},
                            {.core = 0, .l3 = 0, .numa = 0, .package = 0},
                            {.core = 1, .l3 = 0, .numa = 1, .package = 0},
                            {.core = 2, .l3 = 1, .numa = 1, .package = 0}}),
            (std::vector<ReplicaLevel>{
                {"core", Groups{0, 0, 2, 3}}, {"L3 cache", Groups{0, 0, 0, 3}}, {"NUMA node", Groups{0, 0, 0, 0}}}));
}

TEST(Levels, OfReplicasThatAreAnywhereAreOne) {
  EXPECT_EQ(replica_levels({SharedUnits{}, SharedUnits{}, SharedUnits{}}),
            (std::vector<ReplicaLevel>{{"process", Groups{0, 0, 0}}}));
  EXPECT_EQ(replica_levels({SharedUnits{.core = 3, .package = 0}, SharedUnits{}}),
            (std::vector<ReplicaLevel>{{"process", Groups{0, 0}}}));
  EXPECT_TRUE(replica_levels({SharedUnits{.core = 1}}).empty());
  EXPECT_TRUE(replica_levels({}).empty());
}

}  // namespace
}  // namespace lockstep::detail
