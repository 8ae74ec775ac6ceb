// SPDX-License-Identifier: Apache-2.0
#include "topology/machine_pieces.hpp"

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
  for (const MachinePiece& piece : divide(sixteen(), allowed, pieces)) all.push_back(piece.name);
  return all;
}
using Names = std::vector<std::string>;

TEST(Pieces, AreTheLargestPartsThereAre) {
  EXPECT_EQ(names(1), Names{"hardware threads 0-15"});
  EXPECT_EQ(names(2), (Names{"package 0", "package 1"}));
  EXPECT_EQ(names(4), (Names{"L3 cache 0", "L3 cache 1", "L3 cache 2", "L3 cache 3"}));
  EXPECT_EQ(names(8).back(), "core 7");
  EXPECT_EQ(names(16)[1], "hardware thread 8");
}

TEST(Pieces, AreAsEvenAsTheyCanBe) {
  EXPECT_EQ(names(3), (Names{"L3 cache 0", "L3 cache 1", "package 1"}));
  EXPECT_EQ(names(6), (Names{"core 0", "core 1", "L3 cache 1", "core 4", "core 5", "L3 cache 3"}));
  for (int pieces = 1; pieces <= 16; ++pieces) {
    IndexSet all;
    std::size_t number = 0;
    for (const MachinePiece& piece : divide(sixteen(), IndexSet::range(0, 15), pieces)) {
      EXPECT_FALSE(piece.pus.empty());
      number += piece.pus.size();
      all.insert(piece.pus);
    }
    EXPECT_EQ(number, 16U) << "nothing twice, of " << pieces;
    EXPECT_EQ(all, IndexSet::range(0, 15)) << "nothing left, of " << pieces;
  }
}

// Two packages with GPUs: of the first ones only the package is known, or nothing.
TEST(Pieces, NearGpusAreSharedOutAmongThoseOfAPlace) {
  MachineShape machine = sixteen();
  for (Pu& pu : machine.pus) pu.numa = pu.l3;
  machine.gpus = {{"a", "0000:01:00.0", none, 0},
                  {"b", "0000:02:00.0", 2, 1},
                  {"c", "0000:03:00.0", 2, 1},
                  {"d", "0000:04:00.0", none, none},
                  {"e", "", 1, 0}};
  const auto names_near = [&](const std::vector<std::string>& buses, const IndexSet& allowed) {
    Names all;
    for (const MachinePiece& piece : divide_by_device(machine, allowed, buses)) all.push_back(piece.name);
    return all;
  };
  const IndexSet every = IndexSet::range(0, 15);
  EXPECT_EQ(names_near({"0000:01:00.0"}, every), Names{"package 0"});
  EXPECT_EQ(names_near({"0000:02:00.0"}, every), Names{"NUMA node 2"});
  EXPECT_EQ(names_near({"0000:03:00.0", "0000:01:00.0", "0000:02:00.0"}, every),
            (Names{"core 4", "package 0", "core 5"}));
  EXPECT_EQ(names_near({"0000:04:00.0", "", "0000:99:00.0"}, every), (Names{"", "", ""}));
  EXPECT_EQ(names_near({"0000:01:00.0", "0000:02:00.0"}, IndexSet::range(0, 7)), (Names{"package 0", ""}));
}

// As many hardware threads in each NUMA node as the list says.
std::vector<std::size_t> sizes(const std::vector<int>& nodes, int pieces) {
  MachineShape machine;
  for (std::size_t node = 0; node < nodes.size(); ++node) {
    for (int i = 0; i < nodes[node]; ++i) {
      const int pu = static_cast<int>(machine.pus.size());
      machine.pus.push_back({.os_index = pu, .core = pu, .numa = static_cast<int>(node)});
    }
  }
  std::vector<std::size_t> all;
  for (const MachinePiece& piece :
       divide(machine, IndexSet::range(0, static_cast<int>(machine.pus.size()) - 1), pieces))
    all.push_back(piece.pus.size());
  return all;
}

TEST(Pieces, OfUnequalPartsGoByHardwareThreads) {
  using Sizes = std::vector<std::size_t>;
  EXPECT_EQ(sizes({8, 1, 1}, 2), (Sizes{8, 2}));
  EXPECT_EQ(sizes({1, 1, 8}, 2), (Sizes{2, 8}));
  EXPECT_EQ(sizes({4, 4, 4}, 2), (Sizes{8, 4})) << "whole nodes";
  EXPECT_EQ(sizes({2, 2, 2, 2}, 2), (Sizes{4, 4}));
  EXPECT_EQ(sizes({1, 1, 1, 1, 8}, 3), (Sizes{3, 1, 8}));
  EXPECT_EQ(sizes({6, 2}, 4), (Sizes{2, 2, 2, 2}));
}

TEST(Pieces, AreOfTheAllowedCores) {
  EXPECT_EQ(names(2, IndexSet::range(8, 11)), (Names{"core 4", "core 5"}));
  EXPECT_EQ(names(2, IndexSet{1, 9}), (Names{"package 0", "package 1"}));
  EXPECT_EQ(names(3, IndexSet{2}), (Names{"package 0", "package 0", "package 0"})) << "more than there are: shared";
  EXPECT_EQ(names(4, IndexSet::range(0, 1)).size(), 4U);
}

}  // namespace
}  // namespace lockstep
