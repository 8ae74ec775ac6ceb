// SPDX-License-Identifier: Apache-2.0
// Declares the algorithms, and parts of algorithms, from which others are made, with their costs. A schedule is for the
// member `shape.index`; a cost is for all members together.
#pragma once

#include <span>

#include "collectives/shape.hpp"

namespace lockstep {

// Reduces the input, which `blocks` cut, so that the sum of block `shape.index` arrives in `mine` in the output.
Schedule ring_reduce_scatter_to(const Slice& mine, const Shape& shape, const Blocks& blocks);
// Is one cut of the input, and the place in the output for the sum of this member's block.
struct RingPart {
  Slice mine;
  Blocks blocks;
};
// Does the same for several cuts at once. The parts of the input that they cover must not overlap.
Schedule ring_reduce_scatters(std::span<const RingPart> parts, const Shape& shape);
// Sends blocks around the ring. Every member has its own block in the output, and afterwards all blocks.
Schedule ring_gather(const Shape& shape, const Blocks& blocks);
Schedule ring_all_reduce(const Shape& shape);
Cost cost_of_ring_all_reduce(const Shape& shape);

Schedule recursive_doubling_all_reduce(const Shape& shape);
Cost cost_of_recursive_doubling(const Shape& shape);

// Passes sums from each member to the next.
Schedule linear_exscan(const Shape& shape);
Cost cost_of_linear(const Shape& shape);
Schedule doubling_exscan(const Shape& shape);
Cost cost_of_doubling_exscan(const Shape& shape);

// Does the same by recursive doubling. The blocks must lie side by side.
Schedule doubling_gather(const Shape& shape, const Blocks& blocks);
Cost cost_of_doubling_gather(int size, const Blocks& blocks);

// Sends the root's input to all outputs along a binomial tree.
Schedule binomial_broadcast(const Shape& shape);
// Sends it from member to member, in pieces of shape.segment elements.
Schedule chain_broadcast(const Shape& shape);
Cost cost_of_chain(const Shape& shape);
// Reduces all inputs to `sum` at the root, as exactly the balanced tree. Other members also need a `sum`, for their
// part of it. `incoming` is scratch.
Schedule binomial_reduce_to(const Slice& sum, const Slice& incoming, const Shape& shape);
// Returns the number of children of a member, counted from the root, in the binomial tree of a broadcast.
int binomial_children(int from_root, int size);

// Broadcasts by levels, if the shape has any: in each level first among the leaders of its groups.
Schedule broadcast_by_levels(const Shape& shape);
Cost cost_of_broadcast_by_levels(const Shape& shape);
// Reduces as binomial_reduce_to() does, by levels and in no fixed order.
Schedule reduce_by_levels(const Slice& sum, const Slice& incoming, const Shape& shape);
// Returns the number of rounds of either.
std::size_t rounds_by_levels(const Shape& shape);
// Gather, and reduce and scatter, by levels, if all groups have equally many members; else around the ring.
Schedule gather_by_levels(const Shape& shape, const Blocks& blocks);
Cost cost_of_gather_by_levels(const Shape& shape, const Blocks& blocks);
Schedule reduce_scatter_by_levels(const Slice& mine, const Shape& shape, const Blocks& blocks);
Cost cost_of_reduce_scatter_by_levels(const Shape& shape, const Blocks& blocks);
// Exchanges blocks of `shape.count` elements: `given` holds one for each member, and `taken` gets one from each.
// Nothing before element `free` of scratch is written.
Schedule all_to_all_by_levels(const Shape& shape, const Slice& given, const Slice& taken, std::size_t free);
Cost cost_of_all_to_all_by_levels(const Shape& shape);

// Combine in each node, then on the rails, then in each node. The nodes must have equally many members; for the
// balanced ones each node must be a subtree of the balanced tree.
Schedule hierarchical_ring(const Shape& shape);
Schedule hierarchical_doubling(const Shape& shape);
Schedule hierarchical_balanced(const Shape& shape);
Schedule hierarchical_balanced_doubling(const Shape& shape);
Cost cost_of_hierarchical_ring(const Shape& shape);
Cost cost_of_hierarchical_doubling(const Shape& shape);
Cost cost_of_hierarchical_balanced(const Shape& shape);
Cost cost_of_hierarchical_balanced_doubling(const Shape& shape);

// Combine as exactly the balanced tree: everything in each round, or by halves.
Schedule balanced_doubling_all_reduce(const Shape& shape);
Cost cost_of_balanced_doubling(const Shape& shape);
Schedule balanced_halving_all_reduce(const Shape& shape);
Cost cost_of_balanced_halving(const Shape& shape);

}  // namespace lockstep
