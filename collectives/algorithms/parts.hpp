// SPDX-License-Identifier: Apache-2.0
// Algorithms, and parts of them, that others are made of.
#pragma once

#include <span>

#include "collectives/shape.hpp"

namespace lockstep {

// The sum of block `shape.index` goes to `mine` in the output.
Schedule ring_reduce_scatter_to(const Slice& mine, const Shape& shape, const Blocks& blocks);
// The same of several cuts at once: what of the input each of them takes is apart from the others'.
struct RingPart {
  Slice mine;
  Blocks blocks;
};
Schedule ring_reduce_scatters(std::span<const RingPart> parts, const Shape& shape);
// Every member has its own block in the output, and afterwards all blocks.
Schedule ring_gather(const Shape& shape, const Blocks& blocks);
Schedule ring_all_reduce(const Shape& shape);
Cost cost_of_ring_all_reduce(const Shape& shape);

Schedule recursive_doubling_all_reduce(const Shape& shape);
Cost cost_of_recursive_doubling(const Shape& shape);

Schedule doubling_exscan(const Shape& shape);
Cost cost_of_doubling_exscan(const Shape& shape);

// Every member has its own block in the output, and afterwards all blocks, which lie side by side.
Schedule doubling_gather(const Shape& shape, const Blocks& blocks);
Cost cost_of_doubling_gather(int size, const Blocks& blocks);

Schedule binomial_broadcast(const Shape& shape);
// From member to member, in pieces.
Schedule chain_broadcast(const Shape& shape);
Cost cost_of_chain(const Shape& shape);
// The sum of all goes to `sum` at the root, as exactly the balanced tree. Others need a `sum` too, for their part of
// it; `incoming` is scratch.
Schedule binomial_reduce_to(const Slice& sum, const Slice& incoming, const Shape& shape);
// How many children a member has in the binomial tree of a broadcast, counted from the root.
int binomial_children(int from_root, int size);

// By levels as far as there are any: in each first those that are near each other.
Schedule broadcast_by_levels(const Shape& shape);
Cost cost_of_broadcast_by_levels(const Shape& shape);
// As binomial_reduce_to, but in no order.
Schedule reduce_by_levels(const Slice& sum, const Slice& incoming, const Shape& shape);
std::size_t rounds_by_levels(const Shape& shape);  // of either
Schedule gather_by_levels(const Shape& shape, const Blocks& blocks);
Cost cost_of_gather_by_levels(const Shape& shape, const Blocks& blocks);
Schedule reduce_scatter_by_levels(const Slice& mine, const Shape& shape, const Blocks& blocks);
Cost cost_of_reduce_scatter_by_levels(const Shape& shape, const Blocks& blocks);
// From `given`, a block for each member, to `taken`, one from each; both of `shape.count` elements a block. In scratch
// nothing before `free` is written.
Schedule all_to_all_by_levels(const Shape& shape, const Slice& given, const Slice& taken, std::size_t free);
Cost cost_of_all_to_all_by_levels(const Shape& shape);

// Of shapes whose nodes have as many members each; for the balanced ones they are subtrees.
Schedule hierarchical_ring(const Shape& shape);
Schedule hierarchical_doubling(const Shape& shape);
Schedule hierarchical_balanced(const Shape& shape);
Schedule hierarchical_balanced_doubling(const Shape& shape);
Cost cost_of_hierarchical_ring(const Shape& shape);
Cost cost_of_hierarchical_doubling(const Shape& shape);
Cost cost_of_hierarchical_balanced(const Shape& shape);
Cost cost_of_hierarchical_balanced_doubling(const Shape& shape);

Schedule balanced_doubling_all_reduce(const Shape& shape);
Cost cost_of_balanced_doubling(const Shape& shape);
Schedule balanced_halving_all_reduce(const Shape& shape);
Cost cost_of_balanced_halving(const Shape& shape);

}  // namespace lockstep
