// SPDX-License-Identifier: Apache-2.0
// Exchanges data with partners at distances that double or halve, in as many rounds as the number of members has bits.
// If the number is no power of two, pairs of neighbours are folded: one works for both, and the other waits for the
// end. With 4 members, they have these parts of the sum (an all-reduce) or of the blocks (an all-gather):
//
//   `recursive_doubling`: 0 | 1 | 2 | 3      01 | 01 | 23 | 23      0123 | 0123 | 0123 | 0123.
//
//   `recursive_halving`: Far partners come first; in the end a member has the whole sum of its block.
//     0123 | 0123 | 0123 | 0123     01 | 01 | 23 | 23     0 | 1 | 2 | 3.
//
//   `rabenseifner`: It halves, and then does the same steps backwards.
#include <algorithm>
#include <array>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/halving.hpp"
#include "collectives/algorithms/parts.hpp"
#include "collectives/algorithms/shared.hpp"

namespace lockstep {

// All operands are neighbours, so all members combine in the order of the members.
Schedule recursive_doubling_all_reduce(const Shape& shape) {
  const Folding folding(shape.size);
  const Slice sum = output(0, shape.count);
  const Slice theirs = scratch(0, shape.count);
  const int me = shape.index;
  Slice mine = input(0, shape.count);
  ScheduleBuilder doubling;
  if (shape.size == 1) return doubling.round().copy(sum, mine).done();
  if (!folding.works(me))
    return doubling.round().send(folded_with(me), mine).round().receive(folded_with(me), sum).done();
  const auto add = [&](int peer) {
    combine(doubling.receive(peer, theirs), sum, me, mine, peer, theirs);
    mine = sum;
  };
  doubling.round();
  if (folding.is_paired(me)) add(folded_with(me));
  for (int distance = 1; distance < folding.workers; distance *= 2) {
    const int peer = folding.member(folding.number(me) ^ distance);
    doubling.round().send(peer, mine);
    add(peer);
  }
  doubling.round();
  if (folding.is_paired(me)) doubling.send(folded_with(me), sum);
  return doubling.done();
}

Cost cost_of_recursive_doubling(const Shape& shape) {
  const Folding folding(shape.size);
  const std::size_t rounds = folding.rounds();
  const auto extra = static_cast<std::size_t>(folding.extra);
  const std::size_t folds = extra > 0 ? 1 : 0;
  const std::size_t messages = static_cast<std::size_t>(folding.workers) * rounds + 2 * extra;
  return {rounds + 2 * folds, (rounds + folds) * shape.count, messages * shape.count};
}

namespace {

Schedule copy_of_input(const Slice& target) {
  ScheduleBuilder only;
  return only.round().copy(target, input(0, target.count)).done();
}

Schedule rabenseifner_all_reduce(const Shape& shape) {
  const Slice sum = output(0, shape.count);
  if (shape.size == 1) return copy_of_input(sum);
  const Folding folding(shape.size);
  const int pair = folded_with(shape.index);
  ScheduleBuilder halving;
  if (!folding.works(shape.index))
    return halving.round().send(pair, input(0, shape.count)).round().receive(pair, sum).done();
  const HalvingSteps steps = folding.steps(shape.index, Blocks::split(shape.count, shape.size));
  const bool paired = folding.is_paired(shape.index);
  halving.round();
  if (paired) {
    const Slice theirs = scratch(0, shape.count);
    halving.receive(pair, theirs).reduce(sum, input(0, shape.count), theirs);
  }
  const PlacedBuffer from{paired ? Space::output : Space::input};
  reduce_by_halves(halving, steps, shape.index, from, {Space::output}, 0);
  if (shape.rounds_off) round_off(halving, steps, {Space::output});
  gather_back(halving, steps);
  halving.round();
  if (paired) halving.send(pair, sum);
  return halving.done();
}

// A member that works for a pair holds the sum of the whole input before it is halved; others begin with their half.
Schedule halving_reduce_scatter(const Shape& shape) {
  const Blocks blocks = packed(shape.input_blocks);
  const int me = shape.index;
  const Slice own = output(0, blocks.count(me));
  if (shape.size == 1) return with_packed_input(copy_of_input(own), shape.input_blocks);
  const Folding folding(shape.size);
  const int pair = folded_with(me);
  ScheduleBuilder halving;
  if (!folding.works(me)) {
    halving.round().send(pair, input(0, blocks.total())).round().receive(pair, own);
    return with_packed_input(halving.done(), shape.input_blocks);
  }
  const HalvingSteps steps = folding.steps(me, blocks);
  const Slice half = steps.front().kept_ranges.front().range;
  PlacedBuffer from{Space::input};
  PlacedBuffer sums{Space::scratch, half.offset};
  std::size_t incoming = half.count;
  if (folding.is_paired(me)) {
    incoming = blocks.total();
    const Slice whole = scratch(0, incoming);
    halving.round().receive(pair, whole).reduce(whole, input(0, incoming), whole);
    from = sums = {Space::scratch};
  }
  reduce_by_halves(halving, steps, me, from, sums, incoming);
  halving.round().copy(own, sums.at(blocks.slice(Space::output, me)));
  if (folding.is_paired(me)) halving.send(pair, sums.at(blocks.slice(Space::output, pair)));
  return with_packed_input(halving.done(), shape.input_blocks);
}

// Returns the range before a block and the one after it.
std::array<Slice, 2> without(const Blocks& blocks, int block) {
  return {output(0, blocks.offset(block)), output(blocks.end(block), blocks.total() - blocks.end(block))};
}

Schedule doubling_all_gather(const Shape& shape) {
  const Blocks blocks = packed(shape.output_blocks);
  const Slice own = blocks.slice(Space::output, shape.index);
  ScheduleBuilder mine;
  mine.round().copy(own, input(0, own.count));
  return with_packed_output(then(mine.done(), doubling_gather(shape, blocks)), shape.output_blocks);
}

std::size_t folds(const Folding& folding) { return folding.extra > 0 ? 1 : 0; }

// A worker gives away all but its own blocks, and sends as it gathers. Worker 0 gathers most and unfolds: its pair is
// folded if any is, and its blocks are the largest.
Cost cost_of_rabenseifner(const Shape& shape) {
  const Folding folding(shape.size);
  const Blocks blocks = Blocks::split(shape.count, shape.size);
  const std::size_t halved = shape.count - folding.range(blocks, 0, 1).count;
  const std::size_t most = halved + folding.gathers(blocks, 0) + folds(folding) * shape.count;
  const auto others = static_cast<std::size_t>(shape.size - 1);
  return {2 * folding.rounds() + 2 * folds(folding), most, 2 * others * shape.count};
}

// A folded member sends all its data and later gets its own block. Without pairs, the member with the smallest block
// sends most.
Cost cost_of_halving(const Shape& shape) {
  const Folding folding(shape.size);
  const std::size_t all = shape.input_blocks.total();
  std::size_t total = static_cast<std::size_t>(shape.size - 1) * all;
  for (int pair = 0; pair < folding.extra; ++pair) total += shape.input_blocks.count(2 * pair + 1);
  const std::size_t most = folds(folding) > 0 ? all : all - shape.input_blocks.smallest();
  return {folding.rounds() + 2 * folds(folding), most, total};
}

Cost cost_of_doubling_all_gather(const Shape& shape) {
  return cost_of_doubling_gather(shape.size, packed(shape.output_blocks));
}

constexpr AlgorithmProperties order{.order = true};

constexpr std::array<Algorithm, 6> doubling_table = {{
    {Collective::all_reduce, "recursive_doubling", recursive_doubling_all_reduce, cost_of_recursive_doubling, order},
    {Collective::all_reduce, "rabenseifner", rabenseifner_all_reduce, cost_of_rabenseifner, {.once = true}},
    {Collective::reduce_scatter, "recursive_halving", halving_reduce_scatter, cost_of_halving},
    {Collective::reduce_scatter_v, "recursive_halving", halving_reduce_scatter, cost_of_halving},
    {Collective::all_gather, "recursive_doubling", doubling_all_gather, cost_of_doubling_all_gather},
    {Collective::all_gather_v, "recursive_doubling", doubling_all_gather, cost_of_doubling_all_gather},
}};

}  // namespace

Schedule doubling_gather(const Shape& shape, const Blocks& blocks) {
  const int me = shape.index;
  const Folding folding(shape.size);
  const int pair = folded_with(me);
  ScheduleBuilder doubling;
  if (!folding.works(me)) {
    doubling.round().send(pair, blocks.slice(Space::output, me)).round();
    for (const Slice& others : without(blocks, me)) doubling.receive(pair, others);
    return doubling.done();
  }
  doubling.round();
  if (folding.is_paired(me)) doubling.receive(pair, blocks.slice(Space::output, pair));
  gather_back(doubling, folding.steps(me, blocks));
  doubling.round();
  if (folding.is_paired(me)) {
    for (const Slice& others : without(blocks, pair)) doubling.send(pair, others);
  }
  return doubling.done();
}

// A member that works for a pair sends the other one everything but its own block.
Cost cost_of_doubling_gather(int size, const Blocks& blocks) {
  const Folding folding(size);
  std::size_t most = 0;
  for (int worker = 0; worker < folding.workers; ++worker) {
    const std::size_t unfolds = worker < folding.extra ? blocks.total() - blocks.count(2 * worker + 1) : 0;
    most = std::max(most, folding.gathers(blocks, worker) + unfolds);
  }
  for (int pair = 0; pair < folding.extra; ++pair) most = std::max(most, blocks.count(2 * pair + 1));
  const auto others = static_cast<std::size_t>(size - 1);
  return {folding.rounds() + 2 * folds(folding), most, others * blocks.total()};
}

std::span<const Algorithm> doubling_algorithms() { return doubling_table; }

}  // namespace lockstep
