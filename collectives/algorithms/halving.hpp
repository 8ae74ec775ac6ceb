// SPDX-License-Identifier: Apache-2.0
// Reduce-scatter by halves: in every step a member keeps a part of what it holds, whose sum it makes with others,
// and gives the rest away. Backwards the same steps give everything to everybody. Here are the steps as values, how
// they are chosen, and what makes rounds of them.
#pragma once

#include <algorithm>
#include <vector>

#include "collectives/shape.hpp"

namespace lockstep {

// Elements of the whole buffer, wherever it lies, that travel to or from a peer.
struct HalvingTransfer {
  int peer;
  Slice range;
};

struct HalvingStep {
  std::vector<HalvingTransfer> gives;  // no longer mine afterwards
  std::vector<HalvingTransfer> takes;  // exactly what is mine afterwards
};

using HalvingSteps = std::vector<HalvingStep>;

// Where the buffer lies, from its element `origin` on.
struct PlacedBuffer {
  Space space;
  std::size_t origin = 0;
  Slice at(const Slice& range) const { return {space, range.offset - origin, range.count}; }
};

// Contributions of the members, of which the lower index is the left operand.
void combine(ScheduleBuilder& schedule, const Slice& target, int me, const Slice& mine, int peer, const Slice& theirs);

// Reduces: what I hold lies in `from` at first, and sums lie in `sums`. What comes lies in scratch, from `incoming` on.
void reduce_by_halves(ScheduleBuilder& schedule, const HalvingSteps& steps, int me, PlacedBuffer from,
                      const PlacedBuffer& sums, std::size_t incoming);
// What is mine afterwards, where it is as it will be for all.
void round_off(ScheduleBuilder& schedule, const HalvingSteps& steps, const PlacedBuffer& sums);
// Gathers: the same steps backwards, all in the output.
void gather_back(ScheduleBuilder& schedule, const HalvingSteps& steps);

// Blocks [first, last), which lie side by side.
Slice range_of(const Blocks& blocks, int first, int last);

// Blocks of the same sizes side by side, and a schedule that was written for them, for blocks that lie elsewhere.
Blocks packed(const Blocks& blocks);
Schedule with_packed_input(Schedule schedule, const Blocks& blocks);
Schedule with_packed_output(Schedule schedule, const Blocks& blocks);

// Any number of members as a power of two of workers: of so many pairs of neighbours as are too many, one works for
// both, the root if it is one of them, else the lower. Workers are numbered in the order of the members.
//   7 members: 0+1 2+3 4+5 6      6 members: 0+1 2+3 4 5
struct Folding {
  explicit Folding(int members, int the_root = 0);
  int size;
  int workers;
  int extra;  // pairs
  int root;

  bool is_paired(int index) const { return index < 2 * extra; }
  bool works(int index) const { return !is_paired(index) || member(index / 2) == index; }
  int number(int index) const { return is_paired(index) ? index / 2 : index - extra; }
  int member(int number) const {
    if (number >= extra) return number + extra;
    return root == 2 * number + 1 ? root : 2 * number;
  }
  // The blocks of the members for whom the workers [first, first + count) work.
  Slice range(const Blocks& blocks, int first, int count) const {
    return range_of(blocks, first + std::min(first, extra), first + count + std::min(first + count, extra));
  }
  // Steps of a worker, the furthest partner first: worker f has its own blocks in the end.
  HalvingSteps steps(int index, const Blocks& blocks) const;
  // What a worker sends when it gathers by these steps.
  std::size_t gathers(const Blocks& blocks, int number) const;
  std::size_t rounds() const;  // of the steps
};

inline int folded_with(int index) { return index ^ 1; }

// Steps of the balanced tree, the nearest partners first, for any number of members. Member i has block
// balanced_block(i) in the end: for powers of two its bits backwards, so that all that is sent lies side by side.
HalvingSteps balanced_steps(int index, const Blocks& blocks);
int balanced_block(int index, int size);
int balanced_member(int block, int size);  // the other way round

}  // namespace lockstep
