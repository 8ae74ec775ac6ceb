// SPDX-License-Identifier: Apache-2.0
// The algorithms, each a pure function from a shape to a schedule, and the one table that names them. To add
// one, write its function and its row. From then on prove() checks it, and the planner considers it.
#pragma once

#include <span>
#include <string_view>

#include "collectives/shape.hpp"

namespace lockstep {

// The promises that the proof holds an algorithm to.
struct AlgorithmProperties {
  bool order = false;     // left operands come from lower indices: fit for operations that do not commute
  bool balanced = false;  // exactly the tree of balanced(): fit for the reproducible order
  bool in_place = true;   // right when input and output are one memory
  // Whoever makes the sum of an element whole is the only one, and all others copy it from there: if it is rounded
  // off there (Shape::rounds_off), all have the same bits, however messages round what is on its way.
  bool once = false;
  bool node = false;   // has rounds in memory that the members of a node share
  bool apart = false;  // right when blocks of one size do not lie side by side, so that each of them can be cut
};

struct Algorithm {
  Collective collective;
  std::string_view name;
  Schedule (*build)(const Shape&);
  // Of all members together, as the shape of the root sees it. Exact when the count is a multiple of the members (a
  // barrier: always), else an upper bound that is off by what rounding blocks up adds. Of all_to_all_v, of whose counts
  // nobody knows all, only the rounds are a bound; what is sent is as if everybody gave as much as the one who asks.
  Cost (*cost)(const Shape&);
  AlgorithmProperties keeps = {};
  bool (*fits)(const Shape&) = nullptr;  // null: any shape
  bool pieces = false;                   // uses Shape::segment
};

std::span<const Algorithm> algorithms();
// The name of what has no schedule: the members' work in memory that they share.
inline constexpr std::string_view node_algorithm = "node";
const Algorithm* find_algorithm(Collective collective, std::string_view name);
bool fits(const Algorithm& algorithm, const Shape& shape);
// Whether an operation can be done with it segment by segment: of the buffer, where an element of the result depends on
// nothing but the same element of the inputs, or of each block. A table may give such a one a segment, besides
// algorithms that send in pieces.
bool can_be_cut(const Algorithm& algorithm);

// How the balanced tree over the members [first, last) is split: the left part is the largest power of two that is
// smaller than the whole, so every aligned group of 2^k members is a subtree.
int balanced_middle(int first, int last);

// The tables of the families, joined by algorithms().
std::span<const Algorithm> ring_algorithms();
std::span<const Algorithm> doubling_algorithms();
std::span<const Algorithm> tree_algorithms();
std::span<const Algorithm> flat_algorithms();
std::span<const Algorithm> chain_algorithms();
std::span<const Algorithm> exchange_algorithms();
std::span<const Algorithm> scan_algorithms();
std::span<const Algorithm> barrier_algorithms();
std::span<const Algorithm> balanced_algorithms();
std::span<const Algorithm> hierarchical_algorithms();
std::span<const Algorithm> hierarchical_block_algorithms();
std::span<const Algorithm> intra_node_algorithms();
std::span<const Algorithm> intra_node_leader_algorithms();

}  // namespace lockstep
