// SPDX-License-Identifier: Apache-2.0
// Sends every member's blocks to all members, in fewer or smaller messages than "flat".
//
// `bruck`, all-gather: A member's data double in each round. With 5 members, member 1 has in scratch:
//   1          1 2        1 2 3 4        1 2 3 4 0.     Then 0 | 1 2 3 4 goes to the output.
//   from 2 ->  from 3 ->  from 0 (one block).
//
// `bruck`, all-to-all: Slot j holds data that must travel j members further. In round k the slots with bit k set travel
// 2^k members. So a block reaches its member in as many messages as its distance has bits. With 5 members:
//   round 0: slots 1 3    round 1: slots 2 3    round 2: slot 4.
//
// `neighbor`: A member exchanges with its left neighbour, then its right one, and so on, the two blocks that came last.
// With 6 members:
//   0-1 2-3 4-5   one block.     1-2 3-4 5-0   two, own pairs.     0-1 2-3 4-5   two, the pairs that came.
//
// `pairwise`: In round k a member sends to the one k after it, and receives from the one k before it.
#include <algorithm>
#include <array>
#include <bit>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/shared.hpp"

namespace lockstep {
namespace {

// Copies `first` blocks to the end of `target` and the others to its beginning.
void rotate(ScheduleBuilder& schedule, Space target, Space from, std::size_t count, int size, int first) {
  const std::size_t head = static_cast<std::size_t>(first) * count;
  const std::size_t tail = static_cast<std::size_t>(size - first) * count;
  schedule.copy(Slice{target, tail, head}, Slice{from, 0, head}).copy(Slice{target, 0, tail}, Slice{from, head, tail});
}

Schedule bruck_all_gather(const Shape& shape) {
  const auto blocks = [&](int first, int count) {
    return scratch(static_cast<std::size_t>(first) * shape.count, static_cast<std::size_t>(count) * shape.count);
  };
  ScheduleBuilder bruck;
  bruck.round().copy(blocks(0, 1), input(0, shape.count));
  for (int have = 1; have < shape.size; have *= 2) {
    const int more = std::min(have, shape.size - have);
    bruck.round().send(shape.before(have), blocks(0, more)).receive(shape.next(have), blocks(have, more));
  }
  rotate(bruck, Space::output, Space::scratch, shape.count, shape.size, shape.size - shape.index);
  return bruck.done();
}

Schedule neighbor_all_gather(const Shape& shape) {
  const Blocks pairs = Blocks::even(2 * shape.count, shape.size / 2);
  const int side = shape.index % 2 == 0 ? 1 : -1;  // the side of my first partner
  const Slice own = input(0, shape.count);
  ScheduleBuilder neighbor;
  neighbor.round()
      .send(shape.next(side), own)
      .receive(shape.next(side), shape.output_blocks.slice(Space::output, shape.next(side)))
      .copy(shape.output_blocks.slice(Space::output, shape.index), own);
  // The pairs that I get lie ever further away, on one side and the other in turn.
  const auto pair = [&](int round) {
    const int distance = round % 2 == 0 ? round / 2 : -(round + 1) / 2;
    return pairs.slice(Space::output, wrap(shape.index / 2 + side * distance, pairs.parts()));
  };
  for (int round = 1; round < shape.size / 2; ++round) {
    const int peer = shape.next(round % 2 == 0 ? side : -side);
    neighbor.round().send(peer, pair(round - 1)).receive(peer, pair(round));
  }
  return neighbor.done();
}

// Selects the slots that have bit `bit`, packed and unpacked: every second run of `bit` slots. The last run may be
// short.
struct BruckSlots {
  int bit;
  int size;
  std::size_t count;

  int whole() const { return size / (2 * bit); }
  int rest() const { return std::max(size % (2 * bit) - bit, 0); }  // slots of the short run
  std::size_t elements() const { return static_cast<std::size_t>(whole() * bit + rest()) * count; }
  Blocks exchange_cut(int parts) const {
    return Blocks::even(static_cast<std::size_t>(bit) * count, std::max(parts, 1));
  }
  MovingSlice spread() const { return {Space::scratch, exchange_cut(2 * whole()), 1, 2}; }
  MovingSlice packed(std::size_t at) const {
    MovingSlice moving_slice(Space::scratch, exchange_cut(whole()), 0, 1);
    moving_slice.move_to(Space::scratch, at);
    return moving_slice;
  }
  Slice short_spread() const {
    return scratch(static_cast<std::size_t>((2 * whole() + 1) * bit) * count, static_cast<std::size_t>(rest()) * count);
  }
  Slice short_packed(std::size_t at) const {
    return scratch(at + static_cast<std::size_t>(whole() * bit) * count, static_cast<std::size_t>(rest()) * count);
  }
};

// Scratch holds the slots, then the data to send, then the received data.
Schedule bruck_all_to_all(const Shape& shape) {
  const std::size_t slots = static_cast<std::size_t>(shape.size) * shape.count;
  ScheduleBuilder bruck;
  rotate(bruck.round(), Space::scratch, Space::input, shape.count, shape.size, shape.index);
  for (int bit = 1; bit < shape.size; bit *= 2) {
    const BruckSlots runs{bit, shape.size, shape.count};
    const std::size_t other = slots + runs.elements();
    bruck.round(runs.whole()).copy(runs.packed(slots), runs.spread());
    bruck.round().copy(runs.short_packed(slots), runs.short_spread());
    bruck.round()
        .send(shape.next(bit), scratch(slots, runs.elements()))
        .receive(shape.before(bit), scratch(other, runs.elements()))
        .copy(runs.short_spread(), runs.short_packed(other));
    bruck.round(runs.whole()).copy(runs.spread(), runs.packed(other));
  }
  const Blocks blocks = Blocks::even(shape.count, shape.size);
  bruck.round(shape.size)
      .copy(MovingSlice(Space::output, blocks, shape.index, -1), MovingSlice(Space::scratch, blocks, 0, 1));
  return bruck.done();
}

Schedule pairwise_all_to_all(const Shape& shape) {
  ScheduleBuilder pairwise;
  if (shape.output_blocks.listed()) pairwise.keep_empty_messages();
  pairwise.round().copy(shape.output_blocks.slice(Space::output, shape.index),
                        shape.input_blocks.slice(Space::input, shape.index));
  pairwise.round(shape.size - 1)
      .send(shape.next(), 1, shape.size, MovingSlice(Space::input, shape.input_blocks, shape.index + 1, 1))
      .receive(shape.before(), -1, shape.size, MovingSlice(Space::output, shape.output_blocks, shape.index - 1, -1));
  return pairwise.done();
}

bool is_even(const Shape& shape) { return shape.size % 2 == 0; }

// Returns the cost if each member sends `each` elements.
Cost alike(const Shape& shape, int rounds, std::size_t each) {
  return {static_cast<std::size_t>(rounds), each, static_cast<std::size_t>(shape.size) * each};
}

std::size_t all_but_own(const Shape& shape) { return static_cast<std::size_t>(shape.size - 1) * shape.count; }

Cost cost_of_bruck_all_gather(const Shape& shape) { return alike(shape, doublings(shape.size), all_but_own(shape)); }

Cost cost_of_neighbor(const Shape& shape) { return alike(shape, shape.size / 2, all_but_own(shape)); }

Cost cost_of_bruck_all_to_all(const Shape& shape) {
  std::size_t each = 0;
  for (int bit = 1; bit < shape.size; bit *= 2) each += BruckSlots{bit, shape.size, shape.count}.elements();
  return alike(shape, doublings(shape.size), each);
}

// No member knows the others' counts. For the unequal form this assumes that they give as much as I do.
Cost cost_of_pairwise(const Shape& shape) {
  return alike(shape, shape.size - 1, shape.input_blocks.total() - shape.input_blocks.count(shape.index));
}

constexpr AlgorithmProperties mixed{.in_place = false, .mixes = true};
constexpr AlgorithmProperties exchange_cut{.in_place = false, .apart = true};

constexpr std::array<Algorithm, 5> exchange_table = {{
    {Collective::all_gather, "bruck", bruck_all_gather, cost_of_bruck_all_gather},
    {Collective::all_gather, "neighbor", neighbor_all_gather, cost_of_neighbor, {}, is_even},
    {Collective::all_to_all, "bruck", bruck_all_to_all, cost_of_bruck_all_to_all},
    {Collective::all_to_all, "pairwise", pairwise_all_to_all, cost_of_pairwise, exchange_cut},
    {Collective::all_to_all_v, "pairwise", pairwise_all_to_all, cost_of_pairwise, mixed},
}};

}  // namespace

std::span<const Algorithm> exchange_algorithms() { return exchange_table; }

}  // namespace lockstep
