// SPDX-License-Identifier: Apache-2.0
// Around the ring: every member sends to the next and receives from the one before. Least bytes, most rounds:
// for large messages. With 4 members, block b of the sum starts at member b+1 and grows on its way to b:
//
//   round  0 -> 1   1 -> 2   2 -> 3   3 -> 0
//     1      3        0        1        2       (blocks)
//     2      2        3        0        1
//     3      1        2        3        0       now member i has block i; then the same way round to give it to all
#include <array>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/parts.hpp"

namespace lockstep {

// Partial sums travel through two slots of scratch.
Schedule ring_reduce_scatter_to(const Slice& mine, const Shape& shape, const Blocks& blocks) {
  ScheduleBuilder ring;
  if (shape.size == 1) {
    ring.round().copy(mine, blocks.slice(Space::input, 0));
    return ring.done();
  }
  const int last = shape.size - 2;  // its round
  const auto given = [&](int round) { return Walk(Space::input, blocks, shape.index - 1 - round, -1); };
  const auto partial = [&](int round) { return Walk::in_slots(blocks, shape.index - 2 - round, -1, round % 2, 2); };
  ring.round().send(shape.next(), given(0).at(0)).receive(shape.before(), partial(0).at(0));
  if (last > 0) {
    ring.reduce(partial(0).at(0), partial(0).at(0), given(1).at(0));
    ring.round(last - 1)
        .send(shape.next(), partial(0))
        .receive(shape.before(), partial(1))
        .reduce(partial(1), partial(1), given(2));
    ring.round().send(shape.next(), partial(last - 1).at(0)).receive(shape.before(), partial(last).at(0));
  }
  ring.reduce(mine, partial(last).at(0), given(last + 1).at(0));
  return ring.done();
}

Schedule ring_gather(const Shape& shape, const Blocks& blocks) {
  ScheduleBuilder ring;
  ring.round(shape.size - 1)
      .send(shape.next(), Walk(Space::output, blocks, shape.index, -1))
      .receive(shape.before(), Walk(Space::output, blocks, shape.index - 1, -1));
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
  return ring_reduce_scatter_to(output(0, shape.gives.count(shape.index)), shape, shape.gives);
}

Schedule ring_all_gather(const Shape& shape) {
  ScheduleBuilder own;
  own.round().copy(shape.takes.slice(Space::output, shape.index), input(0, shape.takes.count(shape.index)));
  return then(own.done(), ring_gather(shape, shape.takes));
}

// Everybody sends all blocks but one; who does not send the smallest sends most.
Cost cost_of_once_around(const Blocks& blocks, int size) {
  const auto rounds = static_cast<std::size_t>(size - 1);
  return {rounds, blocks.total() - blocks.smallest(), rounds * blocks.total()};
}

Cost cost_of_reduce_scatter(const Shape& shape) { return cost_of_once_around(shape.gives, shape.size); }
Cost cost_of_all_gather(const Shape& shape) { return cost_of_once_around(shape.takes, shape.size); }

constexpr std::array<Algorithm, 5> table = {{
    {Collective::all_reduce, "ring", ring_all_reduce, cost_of_ring_all_reduce, {.once = true}},
    {Collective::reduce_scatter, "ring", ring_reduce_scatter, cost_of_reduce_scatter},
    {Collective::reduce_scatter_v, "ring", ring_reduce_scatter, cost_of_reduce_scatter},
    {Collective::all_gather, "ring", ring_all_gather, cost_of_all_gather},
    {Collective::all_gather_v, "ring", ring_all_gather, cost_of_all_gather},
}};

}  // namespace

Cost cost_of_ring_all_reduce(const Shape& shape) {
  const Cost once = cost_of_once_around(Blocks::split(shape.count, shape.size), shape.size);
  return {2 * once.rounds, 2 * once.sent_most, 2 * once.sent_total};
}

std::span<const Algorithm> ring_algorithms() { return table; }

}  // namespace lockstep
