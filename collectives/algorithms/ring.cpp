// SPDX-License-Identifier: Apache-2.0
// Sends around the ring: every member sends to the next one and receives from the one before. That moves the fewest
// bytes in the most rounds, and so suits large messages. With 4 members, block b of the sum starts at member b+1 and
// grows on its way to b. Afterwards member i has block i, and the same way round gives it to all.
//
//   round  0 -> 1   1 -> 2   2 -> 3   3 -> 0
//     1      3        0        1        2       (blocks)
//     2      2        3        0        1
//     3      1        2        3        0
#include <array>
#include <vector>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/parts.hpp"

namespace lockstep {

Schedule ring_reduce_scatter_to(const Slice& mine, const Shape& shape, const Blocks& blocks) {
  const RingPart all{mine, blocks};
  return ring_reduce_scatters({&all, 1}, shape);
}

// Partial sums travel through two slots of scratch; each part has its own.
Schedule ring_reduce_scatters(std::span<const RingPart> parts, const Shape& shape) {
  ScheduleBuilder ring;
  ring.round();
  if (shape.size == 1) {
    for (const RingPart& part : parts) ring.copy(part.mine, part.blocks.slice(Space::input, 0));
    return ring.done();
  }
  const int last = shape.size - 2;  // its round
  std::size_t at = 0;
  struct RingPartSlices {
    const RingPart* part;
    std::size_t at;
    int index;
    MovingSlice given(int round) const { return {Space::input, part->blocks, index - 1 - round, -1}; }
    MovingSlice partial(int round) const {
      MovingSlice moving_slice = MovingSlice::in_slots(part->blocks, index - 2 - round, -1, round % 2, 2);
      moving_slice.move_to(Space::scratch, at);
      return moving_slice;
    }
  };
  std::vector<RingPartSlices> all;
  all.reserve(parts.size());
  for (const RingPart& part : parts) {
    all.push_back({&part, at, shape.index});
    at += 2 * part.blocks.largest();
  }
  for (const RingPartSlices& part : all) {
    ring.send(shape.next(), part.given(0).at(0)).receive(shape.before(), part.partial(0).at(0));
    if (last > 0) ring.reduce(part.partial(0).at(0), part.partial(0).at(0), part.given(1).at(0));
  }
  if (last > 1) ring.round(last - 1);
  for (const RingPartSlices& part : all) {
    if (last > 1)
      ring.send(shape.next(), part.partial(0))
          .receive(shape.before(), part.partial(1))
          .reduce(part.partial(1), part.partial(1), part.given(2));
  }
  if (last > 0) ring.round();
  for (const RingPartSlices& part : all) {
    if (last > 0)
      ring.send(shape.next(), part.partial(last - 1).at(0)).receive(shape.before(), part.partial(last).at(0));
    ring.reduce(part.part->mine, part.partial(last).at(0), part.given(last + 1).at(0));
  }
  return ring.done();
}

Schedule ring_gather(const Shape& shape, const Blocks& blocks) {
  ScheduleBuilder ring;
  ring.round(shape.size - 1)
      .send(shape.next(), MovingSlice(Space::output, blocks, shape.index, -1))
      .receive(shape.before(), MovingSlice(Space::output, blocks, shape.index - 1, -1));
  return ring.done();
}

Schedule ring_all_reduce(const Shape& shape) {
  const Blocks blocks = Blocks::split(shape.count, shape.size);
  const Slice mine = blocks.slice(Space::output, shape.index);
  ScheduleBuilder whole;
  if (shape.rounds_off) whole.round().round_off(mine);
  return then(then(ring_reduce_scatter_to(mine, shape, blocks), whole.done()), ring_gather(shape, blocks));
}

namespace {

Schedule ring_reduce_scatter(const Shape& shape) {
  return ring_reduce_scatter_to(output(0, shape.input_blocks.count(shape.index)), shape, shape.input_blocks);
}

Schedule ring_all_gather(const Shape& shape) {
  ScheduleBuilder own;
  own.round().copy(shape.output_blocks.slice(Space::output, shape.index),
                   input(0, shape.output_blocks.count(shape.index)));
  return then(own.done(), ring_gather(shape, shape.output_blocks));
}

// Each member sends all blocks but one; a member that does not send the smallest sends most.
Cost cost_of_once_around(const Blocks& blocks, int size) {
  const auto rounds = static_cast<std::size_t>(size - 1);
  return {rounds, blocks.total() - blocks.smallest(), rounds * blocks.total()};
}

Cost ring_cost_of_reduce_scatter(const Shape& shape) { return cost_of_once_around(shape.input_blocks, shape.size); }
Cost ring_cost_of_all_gather(const Shape& shape) { return cost_of_once_around(shape.output_blocks, shape.size); }

constexpr std::array<Algorithm, 5> ring_table = {{
    {Collective::all_reduce, "ring", ring_all_reduce, cost_of_ring_all_reduce, {.once = true}},
    {Collective::reduce_scatter, "ring", ring_reduce_scatter, ring_cost_of_reduce_scatter},
    {Collective::reduce_scatter_v, "ring", ring_reduce_scatter, ring_cost_of_reduce_scatter},
    {Collective::all_gather, "ring", ring_all_gather, ring_cost_of_all_gather},
    {Collective::all_gather_v, "ring", ring_all_gather, ring_cost_of_all_gather},
}};

}  // namespace

Cost cost_of_ring_all_reduce(const Shape& shape) {
  const Cost once = cost_of_once_around(Blocks::split(shape.count, shape.size), shape.size);
  return {2 * once.rounds, 2 * once.sent_most, 2 * once.sent_total};
}

std::span<const Algorithm> ring_algorithms() { return ring_table; }

}  // namespace lockstep
