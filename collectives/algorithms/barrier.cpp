// SPDX-License-Identifier: Apache-2.0
// Builds barriers, which no member leaves before all have come. The message, the one element of a barrier's input, has
// no meaning. Its arrival tells that the sender has come, and all members that the sender had heard of.
//
// `dissemination`: In round k a member sends to the member 2^k after it. With 5 members, member 0 has heard of:
//   0      4 0      2 3 4 0      1 2 3 4 0.
//
// `tree`: Messages go up and down the binomial tree. The parent of a member is its index without its lowest bit:
//   0 -> 1, 2, 4     2 -> 3     4 -> 5, 6     6 -> 7.
//
// `flat`: In the tree every member is a child of member 0.
#include <array>
#include <bit>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/shared.hpp"

namespace lockstep {
namespace {

const Slice presence = input(0, 1);

Schedule dissemination_barrier(const Shape& shape) {
  ScheduleBuilder barrier;
  std::size_t heard = 0;
  for (int reach = 1; reach < shape.size; reach *= 2)
    barrier.round().send(shape.next(reach), presence).receive(shape.before(reach), scratch(heard++, 1));
  return barrier.done();
}

// Waits for the children, tells the parent, waits for its answer, and lets the children go.
Schedule up_and_down(const Shape& shape, int parent, std::span<const int> children) {
  ScheduleBuilder barrier;
  std::size_t heard = 0;
  barrier.round();
  for (const int child : children) barrier.receive(child, scratch(heard++, 1));
  if (shape.index != 0) barrier.round().send(parent, presence).receive(parent, scratch(heard, 1));
  barrier.round();
  for (const int child : children) barrier.send(child, presence);
  return barrier.done();
}

Schedule flat_barrier(const Shape& shape) {
  std::vector<int> children;
  for (int child = 1; shape.index == 0 && child < shape.size; ++child) children.push_back(child);
  return up_and_down(shape, 0, children);
}

Schedule tree_barrier(const Shape& shape) {
  const int lowest = shape.index == 0 ? shape.size : shape.index & -shape.index;
  std::vector<int> children;
  for (int bit = 1; bit < lowest && shape.index + bit < shape.size; bit *= 2) children.push_back(shape.index + bit);
  return up_and_down(shape, shape.index - lowest, children);
}

Cost cost_of_dissemination(const Shape& shape) {
  const auto rounds = static_cast<std::size_t>(doublings(shape.size));
  return {rounds, rounds, static_cast<std::size_t>(shape.size) * rounds};
}

Cost cost_of_flat(const Shape& shape) {
  const auto others = static_cast<std::size_t>(shape.size - 1);
  return {others == 0 ? 0U : 2U, others, 2 * others};
}

// The deepest member is the one with most bits; member 0 has most children.
Cost cost_of_tree(const Shape& shape) {
  const auto depth = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(shape.size)) - 1);
  return {2 * depth, static_cast<std::size_t>(doublings(shape.size)), 2 * static_cast<std::size_t>(shape.size - 1)};
}

constexpr std::array<Algorithm, 3> barrier_table = {{
    {Collective::barrier, "dissemination", dissemination_barrier, cost_of_dissemination},
    {Collective::barrier, "flat", flat_barrier, cost_of_flat},
    {Collective::barrier, "tree", tree_barrier, cost_of_tree},
}};

}  // namespace

std::span<const Algorithm> barrier_algorithms() { return barrier_table; }

}  // namespace lockstep
