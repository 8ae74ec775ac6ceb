// SPDX-License-Identifier: Apache-2.0
// Sends directly to each member that needs the data, in one round. It has the fewest rounds and the most messages, and
// so serves few members. Data are reduced on the members that need the result, as the balanced tree. With 4 members,
// member 1 of an all-reduce does this:
//
//   It sends its input to 2, 3, 0; slots a, b, c receive from 0, 2, 3.
//   Then b = b c,  a = a input,  output = a b             ((0 1) (2 3)).
//
// A reduce-scatter does the same with block 1 of every member, and sends the other blocks to their members.
#include <algorithm>
#include <array>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/shared.hpp"

namespace lockstep {
namespace {

// Receives the others' contributions to the sum of `mine`, and computes it.
void sum_of_all(ScheduleBuilder& flat, const Shape& shape, const Slice& mine, const Slice& target) {
  const std::vector<Slice> given = side_by_side(shape, mine, shape.size);
  for (int step = 1; step < shape.size; ++step) {
    const int peer = shape.before(step);
    flat.receive(peer, given[static_cast<std::size_t>(peer)]);
  }
  reduce_balanced(flat, given, target);
}

Schedule flat_all_reduce(const Shape& shape) {
  ScheduleBuilder flat;
  flat.round();
  for (int step = 1; step < shape.size; ++step) flat.send(shape.next(step), input(0, shape.count));
  sum_of_all(flat, shape, input(0, shape.count), output(0, shape.count));
  return flat.done();
}

Schedule flat_reduce(const Shape& shape) {
  ScheduleBuilder flat;
  flat.round();
  if (shape.index == shape.root)
    sum_of_all(flat, shape, input(0, shape.count), output(0, shape.count));
  else
    flat.send(shape.root, input(0, shape.count));
  return flat.done();
}

Schedule flat_reduce_scatter(const Shape& shape) {
  ScheduleBuilder flat;
  flat.round();
  for (int step = 1; step < shape.size; ++step)
    flat.send(shape.next(step), shape.input_blocks.slice(Space::input, shape.next(step)));
  sum_of_all(flat, shape, shape.input_blocks.slice(Space::input, shape.index),
             output(0, shape.input_blocks.count(shape.index)));
  return flat.done();
}

Schedule flat_all_gather(const Shape& shape) {
  const Slice own = input(0, shape.output_blocks.count(shape.index));
  ScheduleBuilder flat;
  flat.round();
  for (int step = 1; step < shape.size; ++step) {
    flat.send(shape.next(step), own);
    flat.receive(shape.before(step), shape.output_blocks.slice(Space::output, shape.before(step)));
  }
  flat.copy(shape.output_blocks.slice(Space::output, shape.index), own);
  return flat.done();
}

Schedule flat_broadcast(const Shape& shape) {
  const Slice whole = output(0, shape.count);
  ScheduleBuilder flat;
  flat.round();
  if (shape.index != shape.root) return flat.receive(shape.root, whole).done();
  for (int step = 1; step < shape.size; ++step) flat.send(shape.next(step), input(0, shape.count));
  return flat.copy(whole, input(0, shape.count)).done();
}

Schedule flat_gather(const Shape& shape) {
  const Slice own = input(0, shape.output_blocks.count(shape.index));
  ScheduleBuilder flat;
  if (shape.output_blocks.listed()) flat.keep_empty_messages();
  flat.round();
  if (shape.index != shape.root) return flat.send(shape.root, own).done();
  for (int step = 1; step < shape.size; ++step)
    flat.receive(shape.before(step), shape.output_blocks.slice(Space::output, shape.before(step)));
  return flat.copy(shape.output_blocks.slice(Space::output, shape.index), own).done();
}

Schedule flat_scatter(const Shape& shape) {
  const Slice own = output(0, shape.input_blocks.count(shape.index));
  ScheduleBuilder flat;
  if (shape.input_blocks.listed()) flat.keep_empty_messages();
  flat.round();
  if (shape.index != shape.root) return flat.receive(shape.root, own).done();
  for (int step = 1; step < shape.size; ++step)
    flat.send(shape.next(step), shape.input_blocks.slice(Space::input, shape.next(step)));
  return flat.copy(own, shape.input_blocks.slice(Space::input, shape.index)).done();
}

Schedule flat_all_to_all(const Shape& shape) {
  ScheduleBuilder flat;
  if (shape.output_blocks.listed()) flat.keep_empty_messages();
  flat.round();
  for (int step = 1; step < shape.size; ++step) {
    flat.send(shape.next(step), shape.input_blocks.slice(Space::input, shape.next(step)));
    flat.receive(shape.before(step), shape.output_blocks.slice(Space::output, shape.before(step)));
  }
  flat.copy(shape.output_blocks.slice(Space::output, shape.index), shape.input_blocks.slice(Space::input, shape.index));
  return flat.done();
}

std::size_t others(const Shape& shape) { return static_cast<std::size_t>(shape.size - 1); }
std::size_t rounds(const Shape& shape) { return std::min<std::size_t>(others(shape), 1); }

Cost cost_of_all_reduce(const Shape& shape) {
  const std::size_t each = others(shape) * shape.count;
  return {rounds(shape), each, (others(shape) + 1) * each};
}

Cost cost_of_reduce(const Shape& shape) {
  return {rounds(shape), rounds(shape) * shape.count, others(shape) * shape.count};
}

// The member with the smallest block sends most.
Cost flat_cost_of_reduce_scatter(const Shape& shape) {
  return {rounds(shape), shape.input_blocks.total() - shape.input_blocks.smallest(),
          others(shape) * shape.input_blocks.total()};
}

Cost cost_of_all_gather(const Shape& shape) {
  return {rounds(shape), others(shape) * shape.output_blocks.largest(), others(shape) * shape.output_blocks.total()};
}

Cost cost_of_broadcast(const Shape& shape) {
  const std::size_t all = others(shape) * shape.count;
  return {rounds(shape), all, all};
}

Cost cost_of_gather(const Shape& shape) {
  return {rounds(shape), rounds(shape) * shape.output_blocks.largest(),
          shape.output_blocks.total() - shape.output_blocks.count(shape.index)};
}

Cost cost_of_scatter(const Shape& shape) {
  const std::size_t all = shape.input_blocks.total() - shape.input_blocks.count(shape.index);
  return {rounds(shape), all, all};
}

// No member knows the others' counts. For the unequal form this assumes that they give as much as I do.
Cost cost_of_all_to_all(const Shape& shape) {
  const std::size_t each = shape.input_blocks.total() - shape.input_blocks.count(shape.index);
  return {rounds(shape), each, (others(shape) + 1) * each};
}

constexpr AlgorithmProperties tree{.order = true, .balanced = true};
constexpr AlgorithmProperties flat_apart{.in_place = false};
constexpr AlgorithmProperties flat_mixed{.in_place = false, .mixes = true};

// True if members are few enough for schedules in which all combine everything; the limit is a guess.
bool is_for(const Shape& shape) {
  constexpr int most = 1024;
  return shape.size <= most;
}

constexpr std::array<Algorithm, 13> flat_table = {{
    {Collective::all_reduce, "flat", flat_all_reduce, cost_of_all_reduce, tree, is_for},
    {Collective::reduce, "flat", flat_reduce, cost_of_reduce, tree},
    {Collective::reduce_scatter, "flat", flat_reduce_scatter, flat_cost_of_reduce_scatter, tree, is_for},
    {Collective::reduce_scatter_v, "flat", flat_reduce_scatter, flat_cost_of_reduce_scatter, tree, is_for},
    {Collective::all_gather, "flat", flat_all_gather, cost_of_all_gather},
    {Collective::all_gather_v, "flat", flat_all_gather, cost_of_all_gather},
    {Collective::broadcast, "flat", flat_broadcast, cost_of_broadcast},
    {Collective::gather, "flat", flat_gather, cost_of_gather},
    {Collective::gather_v, "flat", flat_gather, cost_of_gather},
    {Collective::scatter, "flat", flat_scatter, cost_of_scatter},
    {Collective::scatter_v, "flat", flat_scatter, cost_of_scatter},
    {Collective::all_to_all, "flat", flat_all_to_all, cost_of_all_to_all, flat_apart},
    {Collective::all_to_all_v, "flat", flat_all_to_all, cost_of_all_to_all, flat_mixed},
}};

}  // namespace

std::span<const Algorithm> flat_algorithms() { return flat_table; }

}  // namespace lockstep
