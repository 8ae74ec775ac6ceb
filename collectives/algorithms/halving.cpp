// SPDX-License-Identifier: Apache-2.0
// Builds the steps of halving. A folding begins with the furthest partners. Member 0 of 4 keeps these blocks:
//   0 1 2 3 -> 0 1 (with 2) -> 0 (with 1).
//
// The balanced tree begins with the nearest partners. A class (r, k) is the keys that end in the k bits of r. Member i
// has key i in the end. Keys lie in the order of their bits backwards, so that a class lies side by side. With 4
// members they lie as 0 2 1 3:
//   member 0: 0 2 1 3 -> 0 2 (with 1) -> 0 (with 2)      member 1: 0 2 1 3 -> 1 3 -> 1.
// If a group has no right half, its members wait. With 3 members, keys lie as 0 2 1. Member 2 holds all until 0 and 1,
// which hold 0 2 and 1, give it key 2, and it gives them 0 and 1.
#include "collectives/algorithms/halving.hpp"

#include <bit>

#include "collectives/algorithms/shared.hpp"

namespace lockstep {

void combine(ScheduleBuilder& schedule, const Slice& target, int me, const Slice& mine, int peer, const Slice& theirs) {
  if (peer < me)
    schedule.reduce(target, theirs, mine);
  else
    schedule.reduce(target, mine, theirs);
}

void reduce_by_halves(ScheduleBuilder& schedule, const HalvingSteps& steps, int me, PlacedBuffer from,
                      const PlacedBuffer& sums, std::size_t incoming) {
  for (const HalvingStep& step : steps) {
    schedule.round();
    for (const HalvingTransfer& part : step.sent_ranges) schedule.send(part.peer, from.at(part.range));
    // The first sums in scratch are computed in the place where their contributions arrive.
    const bool right_there = sums.space == Space::scratch && from.space != Space::scratch;
    std::size_t at = incoming;
    for (const HalvingTransfer& part : step.kept_ranges) {
      const Slice theirs = right_there ? sums.at(part.range) : scratch(at, part.range.count);
      at += part.range.count;
      schedule.receive(part.peer, theirs);
      combine(schedule, sums.at(part.range), me, from.at(part.range), part.peer, theirs);
    }
    from = sums;
  }
}

void round_off(ScheduleBuilder& schedule, const HalvingSteps& steps, const PlacedBuffer& sums) {
  for (const HalvingTransfer& part : steps.back().kept_ranges) schedule.round_off(sums.at(part.range));
}

void gather_back(ScheduleBuilder& schedule, const HalvingSteps& steps) {
  const PlacedBuffer all{Space::output};
  for (std::size_t i = steps.size(); i-- > 0;) {
    const HalvingStep& step = steps[i];
    schedule.round();
    for (const HalvingTransfer& part : step.kept_ranges) schedule.send(part.peer, all.at(part.range));
    for (const HalvingTransfer& part : step.sent_ranges) schedule.receive(part.peer, all.at(part.range));
  }
}

Slice range_of(const Blocks& blocks, int first, int last) {
  if (first == last) return {};
  return {Space::output, blocks.offset(first), blocks.end(last - 1) - blocks.offset(first)};
}

namespace {

bool is_packed(const Blocks& blocks) {
  std::size_t end = 0;
  for (int block = 0; block < blocks.parts(); ++block) {
    if (blocks.offset(block) != end) return false;
    end = blocks.end(block);
  }
  return true;
}

}  // namespace

Blocks packed(const Blocks& blocks) {
  if (is_packed(blocks)) return blocks;
  std::vector<std::size_t> counts;
  counts.reserve(static_cast<std::size_t>(blocks.parts()));
  for (int block = 0; block < blocks.parts(); ++block) counts.push_back(blocks.count(block));
  return Blocks::packed(counts);
}

Schedule with_packed_input(Schedule schedule, const Blocks& blocks) {
  if (is_packed(blocks)) return schedule;
  const Blocks together = packed(blocks);
  const std::size_t at = schedule.scratch;
  MovingSlice to(Space::scratch, together, 0, 1);
  to.move_to(Space::scratch, at);
  ScheduleBuilder pack;
  pack.round(blocks.parts()).copy(to, MovingSlice(Space::input, blocks, 0, 1));
  return then(pack.done(), moved(std::move(schedule), Space::input, Space::scratch, at));
}

Schedule with_packed_output(Schedule schedule, const Blocks& blocks) {
  if (is_packed(blocks)) return schedule;
  const Blocks together = packed(blocks);
  const std::size_t at = schedule.scratch;
  MovingSlice from(Space::scratch, together, 0, 1);
  from.move_to(Space::scratch, at);
  ScheduleBuilder unpack;
  unpack.round(blocks.parts()).copy(MovingSlice(Space::output, blocks, 0, 1), from);
  return then(moved(std::move(schedule), Space::output, Space::scratch, at), unpack.done());
}

Folding::Folding(int members, int the_root)
    : size(members),
      workers(static_cast<int>(std::bit_floor(static_cast<unsigned>(members)))),
      extra(members - workers),
      root(the_root) {}

HalvingSteps Folding::steps(int index, const Blocks& blocks) const {
  const int me = number(index);
  const auto group = [&](int worker, int width) { return range(blocks, worker / width * width, width); };
  HalvingSteps all;
  for (int width = workers / 2; width > 0; width /= 2) {
    const int peer = member(me ^ width);
    all.push_back({{{peer, group(me ^ width, width)}}, {{peer, group(me, width)}}});
  }
  return all;
}

std::size_t Folding::gathers(const Blocks& blocks, int number) const {
  std::size_t all = 0;
  for (int width = 1; width < workers; width *= 2) all += range(blocks, number / width * width, width).count;
  return all;
}

std::size_t Folding::rounds() const { return static_cast<std::size_t>(doublings(workers)); }

namespace {

// Returns the number of keys below `size` that end in these bits.
int class_size(int ending, int bits, int size) { return ending < size ? ((size - 1 - ending) >> bits) + 1 : 0; }

// Returns the number of keys that lie before them.
int class_begin(int ending, int bits, int size) {
  int before = 0;
  for (int bit = 0; bit < bits; ++bit) {
    if ((ending >> bit & 1) != 0) before += class_size(ending & ((1 << bit) - 1), bit + 1, size);
  }
  return before;
}

Slice class_range(const Blocks& blocks, int ending, int bits) {
  const int begin = class_begin(ending, bits, blocks.parts());
  return range_of(blocks, begin, begin + class_size(ending, bits, blocks.parts()));
}

// Returns the holder of class (ending, bits) among the 2^bits members from `first` on, as far as they exist.
int class_holder(int ending, int bits, int first, int size) {
  for (int bit = bits - 1; bit >= 0; --bit) {
    if ((ending >> bit & 1) != 0 && first + (1 << bit) < size) first += 1 << bit;
  }
  return first;
}

}  // namespace

HalvingSteps balanced_steps(int index, const Blocks& blocks) {
  const int size = blocks.parts();
  HalvingSteps all;
  for (int bits = 0; 1 << bits < size; ++bits) {
    const int half = 1 << bits;
    const int first = index & ~(2 * half - 1);
    const int middle = first + half;
    if (middle >= size) continue;
    // In the left half every class has a member of its own, and so it has in a whole right half.
    const bool only_one = index < middle || middle + half <= size;
    const int partner = index < middle ? index : index - half;
    HalvingStep step;
    for (int left = only_one ? partner : first; left < (only_one ? partner + 1 : middle); ++left) {
      const int ending = left - first;
      const int right = class_holder(ending, bits, middle, size);
      const Slice low = class_range(blocks, ending, bits + 1);
      const Slice high = class_range(blocks, ending + half, bits + 1);
      if (index == left) step = {{{right, high}}, {{right, low}}};
      if (index != right) continue;
      step.sent_ranges.push_back({left, low});
      step.kept_ranges.push_back({left, high});
    }
    all.push_back(std::move(step));
  }
  return all;
}

int balanced_block(int index, int size) { return class_begin(index, doublings(size), size); }

int balanced_member(int block, int size) {
  int ending = 0;
  for (int bits = 0; 1 << bits < size; ++bits) {
    const int low = class_size(ending, bits + 1, size);
    if (block < low) continue;
    block -= low;
    ending |= 1 << bits;
  }
  return ending;
}

}  // namespace lockstep
