// SPDX-License-Identifier: Apache-2.0
// Holds reduce-scatter by halves as values. In every step a member keeps a part of its data, which it combines with
// others', and gives the rest away. The same steps backwards gather all blocks on all members. The functions choose the
// steps and turn them into rounds.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/shape.hpp"

namespace lockstep {

// Is a range of elements of the whole buffer that travels to or from a peer. Its space does not count.
struct HalvingTransfer {
  int peer;
  Slice range;
};

// Is one step of one member.
struct HalvingStep {
  std::vector<HalvingTransfer> sent_ranges;  // it loses these ranges
  std::vector<HalvingTransfer> kept_ranges;  // it has exactly these ranges afterwards
};

using HalvingSteps = std::vector<HalvingStep>;

// Says where a buffer lies: its element `origin` is the first one of the space.
struct PlacedBuffer {
  Space space;
  std::size_t origin = 0;
  Slice at(const Slice& range) const { return {space, range.offset - origin, range.count}; }
};

// Combines my contribution with a peer's into `target`; the lower index is the left operand.
void combine(ScheduleBuilder& schedule, const Slice& target, int me, const Slice& mine, int peer, const Slice& theirs);

// Appends the rounds that reduce. My contribution lies in `from` at first, and sums lie in `sums`. Data from others
// arrive in scratch, from element `incoming` on.
void reduce_by_halves(ScheduleBuilder& schedule, const HalvingSteps& steps, int me, PlacedBuffer from,
                      const PlacedBuffer& sums, std::size_t incoming);
// Rounds off the ranges that this member has after the steps, before all members get them.
void round_off(ScheduleBuilder& schedule, const HalvingSteps& steps, const PlacedBuffer& sums);
// Appends the rounds that gather: the same steps backwards, all in the output.
void gather_back(ScheduleBuilder& schedule, const HalvingSteps& steps);

// Returns the range of blocks [first, last), which must lie side by side.
Slice range_of(const Blocks& blocks, int first, int last);

// Return blocks of the same sizes side by side, and a schedule that was built for them, changed for blocks that lie
// elsewhere. The schedule copies the input or output through scratch if needed.
Blocks packed(const Blocks& blocks);
Schedule with_packed_input(Schedule schedule, const Blocks& blocks);
Schedule with_packed_output(Schedule schedule, const Blocks& blocks);

// Folds any number of members into a power of two of workers. If there are k members too many, the first k pairs of
// neighbours have one worker each. It is the root if that is one of the two, else the lower one. Workers are numbered
// in the order of the members. Examples:
//   7 members: 0+1 2+3 4+5 6      6 members: 0+1 2+3 4 5
struct Folding {
  explicit Folding(int members, int the_root = 0);
  int size;
  int workers;
  int extra;  // pairs with one worker
  int root;

  // True if the member is one of a pair, and if it is a worker.
  bool is_paired(int index) const { return index < 2 * extra; }
  bool works(int index) const { return !is_paired(index) || member(index / 2) == index; }
  // Convert between a member that works and its number as a worker.
  int number(int index) const { return is_paired(index) ? index / 2 : index - extra; }
  int member(int number) const {
    if (number >= extra) return number + extra;
    return root == 2 * number + 1 ? root : 2 * number;
  }
  // Returns the range of the blocks of all members that the workers [first, first + count) work for.
  Slice range(const Blocks& blocks, int first, int count) const {
    return range_of(blocks, first + std::min(first, extra), first + count + std::min(first + count, extra));
  }
  // Returns the steps of a worker, the furthest partner first. Worker f ends with its own blocks, and its pair's.
  HalvingSteps steps(int index, const Blocks& blocks) const;
  // Returns the number of elements that a worker sends when it gathers by these steps.
  std::size_t gathers(const Blocks& blocks, int number) const;
  // Returns the number of steps.
  std::size_t rounds() const;
};

// Returns the other member of a pair.
inline int folded_with(int index) { return index ^ 1; }

// Returns the steps of the balanced tree, the nearest partners first, for any number of members. Member i ends with
// block balanced_block(i). For powers of two that is i with its bits backwards, so that every message is one range.
HalvingSteps balanced_steps(int index, const Blocks& blocks);
int balanced_block(int index, int size);
// Returns the inverse of balanced_block().
int balanced_member(int block, int size);

}  // namespace lockstep
