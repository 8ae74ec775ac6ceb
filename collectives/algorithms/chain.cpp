// SPDX-License-Identifier: Apache-2.0
// Passes data from member to member, piece by piece. Every member sends everything once, and all links work at the same
// time. With 4 members, 3 pieces and root 0, these pieces go in each round. A reduce goes the other way and adds each
// member's data.
//
//   round    1   2   3   4   5
//   0 -> 1   0   1   2
//   1 -> 2       0   1   2
//   2 -> 3           0   1   2
#include <array>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/parts.hpp"

namespace lockstep {
Schedule chain_broadcast(const Shape& shape) {
  const Blocks pieces = Blocks::pieces(shape.count, shape.segment);
  const auto moving_slice = [&](Space space, int first) { return MovingSlice(space, pieces, first, 1); };
  const bool last = shape.from_root() == shape.size - 1;
  ScheduleBuilder chain;
  if (shape.index == shape.root) {
    chain.round(pieces.parts()).copy(moving_slice(Space::output, 0), moving_slice(Space::input, 0));
    if (!last) chain.send(shape.next(), moving_slice(Space::input, 0));
  } else if (last) {
    chain.round(pieces.parts()).receive(shape.before(), moving_slice(Space::output, 0));
  } else {
    chain.round().receive(shape.before(), pieces.slice(Space::output, 0));
    chain.round(pieces.parts() - 1)
        .send(shape.next(), moving_slice(Space::output, 0))
        .receive(shape.before(), moving_slice(Space::output, 1));
    chain.round().send(shape.next(), pieces.slice(Space::output, pieces.parts() - 1));
  }
  return chain.done();
}

namespace {

// Partial sums travel through two slots of scratch.
Schedule chain_reduce(const Shape& shape) {
  const Blocks pieces = Blocks::pieces(shape.count, shape.segment);
  const auto given = [&](int first) { return MovingSlice(Space::input, pieces, first, 1); };
  const auto sum = [&](int first) { return MovingSlice::in_slots(pieces, first, 1, first % 2, 2); };
  const bool last = shape.from_root() == shape.size - 1;
  ScheduleBuilder chain;
  if (shape.index == shape.root) {
    const MovingSlice result(Space::output, pieces, 0, 1);
    chain.round(pieces.parts());
    if (last)
      chain.copy(result, given(0));
    else
      chain.receive(shape.next(), sum(0)).reduce(result, given(0), sum(0));
  } else if (last) {
    chain.round(pieces.parts()).send(shape.before(), given(0));
  } else {
    chain.round().receive(shape.next(), sum(0).at(0)).reduce(sum(0).at(0), given(0).at(0), sum(0).at(0));
    chain.round(pieces.parts() - 1)
        .send(shape.before(), sum(0))
        .receive(shape.next(), sum(1))
        .reduce(sum(1), given(1), sum(1));
    chain.round().send(shape.before(), sum(pieces.parts() - 1).at(0));
  }
  return chain.done();
}

}  // namespace

// The last piece starts after all others and passes every member.
Cost cost_of_chain(const Shape& shape) {
  if (shape.size == 1) return {};
  const auto links = static_cast<std::size_t>(shape.size - 1);
  const auto pieces = static_cast<std::size_t>(Blocks::pieces(shape.count, shape.segment).parts());
  return {pieces - 1 + links, shape.count, links * shape.count};
}

namespace {

constexpr std::array<Algorithm, 2> chain_table = {{
    {Collective::broadcast, "chain", chain_broadcast, cost_of_chain, {}, nullptr, true},
    {Collective::reduce, "chain", chain_reduce, cost_of_chain, {}, nullptr, true},
}};

}  // namespace

std::span<const Algorithm> chain_algorithms() { return chain_table; }

}  // namespace lockstep
