// SPDX-License-Identifier: Apache-2.0
// Lists the algorithms, each a pure function from a shape to a schedule, in one table that names them. To add one,
// write its function and its row. From then on the proof of the tests checks it, and the planner considers it.
#pragma once

#include <span>
#include <string_view>

#include "collectives/shape.hpp"

namespace lockstep {

// Lists the promises that the proof checks for an algorithm.
struct AlgorithmProperties {
  bool order = false;     // left operands come from lower indices: fit for operations that do not commute
  bool balanced = false;  // combines as exactly the tree of balanced_middle(): fit for the reproducible order
  bool in_place = true;   // correct if input and output are one memory
  // Says that one member only completes an element's sum, and all others copy it. If that member rounds it off
  // (Shape::rounds_off), all members have the same bits, although messages round data on their way.
  bool once = false;
  bool node = false;  // has rounds in memory that the members of a node share
  // Says that the algorithm is correct if equal blocks lie apart, so that each of them can be cut into segments.
  bool apart = false;
  // Says that each member waits for one other and passes on its sum, so that segments follow each other closely even if
  // members share cores. Only the cost model uses it.
  bool relays = false;
  // Says that its rounds in a node are an all_gather_v at the end, in place in the output, and before that on the
  // root's node a scatter_v. On other nodes a member's block comes in the first round. So members of a node can copy
  // segments as they come (NodeFlow), and none waits for all others.
  bool flows = false;
  // Says that each member sends its block for another one in one message, and nothing else. So members of one call can
  // use different algorithms of this kind.
  bool mixes = false;
};

// Is a row of the table.
struct Algorithm {
  Collective collective;
  std::string_view name;
  Schedule (*build)(const Shape&);
  // Returns the cost for all members together, from the root's shape. It is exact if the count is a multiple of the
  // number of members, and for a barrier. Else it is an upper bound, off by the rounding up of blocks. For all_to_all_v
  // only the number of rounds is a bound; the bytes are as if every member gave as much as this one.
  Cost (*cost)(const Shape&);
  AlgorithmProperties keeps = {};
  bool (*fits)(const Shape&) = nullptr;  // null: it fits any shape
  bool pieces = false;                   // it uses Shape::segment
};

// Returns all algorithms. The table lives for ever.
std::span<const Algorithm> algorithms();
// Names the way without a schedule: the members work in memory that they share.
inline constexpr std::string_view node_algorithm = "node";
// Returns the algorithm of this name; null if there is none.
const Algorithm* find_algorithm(Collective collective, std::string_view name);
// True if the algorithm can do a problem of this shape.
bool fits(const Algorithm& algorithm, const Shape& shape);
// True if the algorithm can do its collective segment by segment. If an element of the result depends only on the same
// element of the inputs, it cuts the buffer. Otherwise it may cut each block. A row of a plan table may give it a
// segment, as it may for algorithms that send in pieces.
bool can_be_cut(const Algorithm& algorithm);

// Returns the split of the balanced tree over the members [first, last). The left part is the largest power of two
// below the whole, so that every aligned group of 2^k members is a subtree.
int balanced_middle(int first, int last);

// Return the tables of the families, which algorithms() joins.
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
std::span<const Algorithm> node_tree_algorithms();

}  // namespace lockstep
