// SPDX-License-Identifier: Apache-2.0
#include "topology/pieces.hpp"

#include <gtest/gtest.h>

namespace lockstep {
namespace {

// Two packages of two caches of two cores of two hardware threads, which the system counts with the second threads of
// the cores behind all first ones.
MachineShape sixteen() {
  MachineShape machine;
  for (int pu = 0; pu < 16; ++pu)
    machine.pus.push_back({.os_index = pu / 2 + pu % 2 * 8, .core = pu / 2, .l3 = pu / 4, .package = pu / 8});
  return machine;
}

std::vector<std::string> names(int pieces, const IndexSet& allowed = IndexSet::range(0, 15)) {
  std::vector<std::string> all;
  for (const Piece& piece : divide(sixteen(), allowed, pieces)) all.push_back(piece.name);
  return all;
}
using Names = std::vector<std::string>;

TEST(Pieces, are_the_largest_parts_there_are) {
  EXPECT_EQ(names(1), Names{"hardware threads 0-15"});
  EXPECT_EQ(names(2), (Names{"package 0", "package 1"}));
  EXPECT_EQ(names(4), (Names{"L3 cache 0", "L3 cache 1", "L3 cache 2", "L3 cache 3"}));
  EXPECT_EQ(names(8).back(), "core 7");
  EXPECT_EQ(names(16)[1], "hardware thread 8");
}

TEST(Pieces, are_as_even_as_they_can_be) {
  EXPECT_EQ(names(3), (Names{"L3 cache 0", "L3 cache 1", "package 1"}));
  EXPECT_EQ(names(6), (Names{"core 0", "core 1", "L3 cache 1", "core 4", "core 5", "L3 cache 3"}));
  for (int pieces = 1; pieces <= 16; ++pieces) {
    IndexSet all;
    std::size_t number = 0;
    for (const Piece& piece : divide(sixteen(), IndexSet::range(0, 15), pieces)) {
      EXPECT_FALSE(piece.pus.empty());
      number += piece.pus.size();
      all.insert(piece.pus);
    }
    EXPECT_EQ(number, 16U) << "nothing twice, of " << pieces;
    EXPECT_EQ(all, IndexSet::range(0, 15)) << "nothing left, of " << pieces;
  }
}

TEST(Pieces, are_of_what_may_be_used) {
  EXPECT_EQ(names(2, IndexSet::range(8, 11)), (Names{"core 4", "core 5"}));
  EXPECT_EQ(names(2, IndexSet{1, 9}), (Names{"package 0", "package 1"}));
  EXPECT_EQ(names(3, IndexSet{2}), (Names{"package 0", "package 0", "package 0"})) << "more than there are: shared";
  EXPECT_EQ(names(4, IndexSet::range(0, 1)).size(), 4U);
}

}  // namespace
}  // namespace lockstep
