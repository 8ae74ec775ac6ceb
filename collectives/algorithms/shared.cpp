// SPDX-License-Identifier: Apache-2.0
// Combines contributions as the balanced tree. With 5 contributions, a letter stands for one and for its slot; b is
// mine, the input:
//
//   c = c d   (c d)
//   a = a b   (a b)     A sum takes the slot of the left operand, or of the right one if the left one is mine.
//   a = a c   ((a b) (c d))
//   target = a e.
#include "collectives/algorithms/shared.hpp"

#include "collectives/algorithms/algorithms.hpp"

namespace lockstep {

std::vector<Slice> side_by_side(const Shape& shape, const Slice& mine, int last) {
  std::vector<Slice> given;
  given.reserve(static_cast<std::size_t>(last));
  for (int member = 0; member < last; ++member) {
    const auto slot = static_cast<std::size_t>(member > shape.index ? member - 1 : member);
    given.push_back(member == shape.index ? mine : scratch(slot * mine.count, mine.count));
  }
  return given;
}

namespace {

// Returns the place of the sum over [first, last).
Slice subtree(ScheduleBuilder& schedule, std::span<const Slice> given, int first, int last) {
  if (last - first == 1) return given[static_cast<std::size_t>(first)];
  const int middle = balanced_middle(first, last);
  const Slice left = subtree(schedule, given, first, middle);
  const Slice right = subtree(schedule, given, middle, last);
  const Slice place = left.space == Space::scratch ? left : right;
  schedule.reduce(place, left, right);
  return place;
}

}  // namespace

void reduce_balanced(ScheduleBuilder& schedule, std::span<const Slice> given, const Slice& target) {
  const int last = static_cast<int>(given.size());
  if (last == 1) {
    schedule.copy(target, given[0]);
    return;
  }
  const int middle = balanced_middle(0, last);
  const Slice left = subtree(schedule, given, 0, middle);
  schedule.reduce(target, left, subtree(schedule, given, middle, last));
}

}  // namespace lockstep
