// SPDX-License-Identifier: Apache-2.0
// Gives results that are the same for any number of members on a node, any size and any algorithm. Every sum is exactly
// the balanced tree over the members. There are as many rounds as the number of members has bits. After round k the
// aligned groups of 2^k members have their sums. With 5 members that is as follows.
//
//   `doubling`: Each member has the whole sum of its group.    0 | 1 | 2 | 3 | 4    01 01 23 23 4    0123 .. 0123 4.
//     In the last round member 4 gets it from 0, and all others get the sum of 4.
//
//   `halving`: In each group one member has the sum of each block, as halving.cpp tells; backwards it gathers.
//     A reduce-scatter ends with its blocks by their bits backwards; one more round brings them to their members.
#include <algorithm>
#include <array>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/halving.hpp"
#include "collectives/algorithms/parts.hpp"
#include "collectives/algorithms/shared.hpp"

namespace lockstep {
namespace {

// Describes a round, in which two halves of a group meet: the left [first, middle) and the right [middle, last). The
// right half may be smaller in the last group, or missing.
struct HalfExchange {
  HalfExchange(int index, int half, int size)
      : first(index & ~(2 * half - 1)), middle(first + half), last(std::min(middle + half, size)) {}
  int first;
  int middle;
  int last;
  bool has_right() const { return middle < last; }
  int giver(int index) const {  // returns the member of the other half that gives to this one
    return index < middle ? middle + (index - first) % (last - middle) : first + index - middle;
  }
  // Calls visit(member) for each member of the other half that this one gives to.
  template <class Visit>
  void each_taker(int index, const Visit& visit) const {
    const int rights = last - middle;
    if (index >= middle) {
      for (int taker = first + index - middle; taker < middle; taker += rights) visit(taker);
    } else if (index - first < rights) {
      visit(middle + index - first);
    }
  }
};

}  // namespace

Schedule balanced_doubling_all_reduce(const Shape& shape) {
  const Slice sum = output(0, shape.count);
  const Slice theirs = scratch(0, shape.count);
  Slice mine = input(0, shape.count);
  ScheduleBuilder doubling;
  if (shape.size == 1) return doubling.round().copy(sum, mine).done();
  for (int half = 1; half < shape.size; half *= 2) {
    const HalfExchange meeting(shape.index, half, shape.size);
    if (!meeting.has_right()) continue;
    const int giver = meeting.giver(shape.index);
    doubling.round().receive(giver, theirs);
    meeting.each_taker(shape.index, [&](int taker) { doubling.send(taker, mine); });
    combine(doubling, sum, shape.index, mine, giver, theirs);
    mine = sum;
  }
  return doubling.done();
}

// Each member of a group with two halves receives once. A member that is alone in its half gives to all of the other.
Cost cost_of_balanced_doubling(const Shape& shape) {
  std::size_t most = 0;
  std::size_t total = 0;
  for (int index = 0; index < shape.size; ++index) {
    std::size_t sent = 0;
    for (int half = 1; half < shape.size; half *= 2) {
      const HalfExchange meeting(index, half, shape.size);
      if (meeting.has_right()) meeting.each_taker(index, [&](int) { ++sent; });
    }
    most = std::max(most, sent);
    total += sent;
  }
  return {static_cast<std::size_t>(doublings(shape.size)), most * shape.count, total * shape.count};
}

Schedule balanced_halving_all_reduce(const Shape& shape) {
  ScheduleBuilder halving;
  if (shape.size == 1) return halving.round().copy(output(0, shape.count), input(0, shape.count)).done();
  const HalvingSteps steps = balanced_steps(shape.index, Blocks::split(shape.count, shape.size));
  reduce_by_halves(halving, steps, shape.index, {Space::input}, {Space::output}, 0);
  if (shape.rounds_off) round_off(halving, steps, {Space::output});
  gather_back(halving, steps);
  return halving.done();
}

// Each member gives away all but its own block. Member 0 holds most on the way: in every round half of its data,
// rounded up. It sends the same when it gathers.
Cost cost_of_balanced_halving(const Shape& shape) {
  const Blocks blocks = Blocks::split(shape.count, shape.size);
  const auto rounds = static_cast<std::size_t>(doublings(shape.size));
  std::size_t gathered = 0;
  for (int held = shape.size; held > 1;) gathered += static_cast<std::size_t>(held = (held + 1) / 2);
  return {2 * rounds, shape.count - blocks.smallest() + gathered * blocks.largest(),
          2 * static_cast<std::size_t>(shape.size - 1) * shape.count};
}

namespace {

Schedule balanced_halving_reduce_scatter(const Shape& shape) {
  const Blocks blocks = packed(shape.input_blocks);
  const int me = shape.index;
  const Slice own = output(0, blocks.count(me));
  ScheduleBuilder halving;
  if (shape.size == 1) return halving.round().copy(own, input(0, own.count)).done();
  const HalvingSteps steps = balanced_steps(me, blocks);
  std::size_t begin = blocks.total();
  std::size_t end = 0;
  for (const HalvingTransfer& part : steps.front().kept_ranges) {
    begin = std::min(begin, part.range.offset);
    end = std::max(end, part.range.offset + part.range.count);
  }
  const PlacedBuffer sums{Space::scratch, begin};
  reduce_by_halves(halving, steps, me, {Space::input}, sums, end - std::min(begin, end));
  const int held = balanced_block(me, shape.size);
  const Slice sum = sums.at(blocks.slice(Space::output, held));
  halving.round();
  if (held == me)
    halving.copy(own, sum);
  else
    halving.send(held, sum).receive(balanced_member(me, shape.size), own);
  return with_packed_input(halving.done(), shape.input_blocks);
}

// Each member gives away all but one block, and then sends that to its member unless it is its own.
Cost cost_of_reduce_scatter(const Shape& shape) {
  const std::size_t all = shape.input_blocks.total();
  const bool moves = shape.size > 2;
  Cost cost{static_cast<std::size_t>(doublings(shape.size)) + (moves ? 1 : 0),
            moves ? all : all - shape.input_blocks.smallest(), static_cast<std::size_t>(shape.size - 1) * all};
  for (int block = 0; block < shape.size; ++block) {
    if (balanced_block(block, shape.size) != block) cost.sent_total += shape.input_blocks.count(block);
  }
  return cost;
}

constexpr AlgorithmProperties balanced{.order = true, .balanced = true};
constexpr auto reduce_scatter = balanced_halving_reduce_scatter;

constexpr std::array<Algorithm, 4> balanced_table = {{
    {Collective::all_reduce, "balanced_doubling", balanced_doubling_all_reduce, cost_of_balanced_doubling, balanced},
    {Collective::all_reduce,
     "balanced_halving",
     balanced_halving_all_reduce,
     cost_of_balanced_halving,
     {.order = true, .balanced = true, .once = true}},
    {Collective::reduce_scatter, "balanced_halving", reduce_scatter, cost_of_reduce_scatter, balanced},
    {Collective::reduce_scatter_v, "balanced_halving", reduce_scatter, cost_of_reduce_scatter, balanced},
}};

}  // namespace

std::span<const Algorithm> balanced_algorithms() { return balanced_table; }

}  // namespace lockstep
