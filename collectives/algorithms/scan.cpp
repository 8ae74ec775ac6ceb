// SPDX-License-Identifier: Apache-2.0
// Combines the data of all members before me, with mine (scan) or without mine (exscan). In an exscan, member 0's
// output stays unchanged.
//
// `recursive_doubling`: Every member's sum reaches back twice as far in each round. With 5 members, they have the sum
// of:
//
//             0     1     2     3     4
//             0     1     2     3     4
//   1 further 0    0-1   1-2   2-3   3-4
//   2 further 0    0-1   0-2   0-3   1-4
//   4 further 0    0-1   0-2   0-3   0-4.
//
// `linear`: Data go from one member to the next.
// `flat_balanced`: Each member sends to all after it, which combine as the balanced tree.
#include <algorithm>
#include <array>

#include "collectives/algorithms/algorithms.hpp"
#include "collectives/algorithms/parts.hpp"
#include "collectives/algorithms/shared.hpp"

namespace lockstep {
namespace {

Slice given(const Shape& shape) { return input(0, shape.count); }
Slice result(const Shape& shape) { return output(0, shape.count); }
Slice slot(const Shape& shape, std::size_t number) { return scratch(number * shape.count, shape.count); }
bool is_last(const Shape& shape) { return shape.index == shape.size - 1; }

Schedule linear_scan(const Shape& shape) {
  ScheduleBuilder linear;
  linear.round();
  if (shape.index == 0)
    linear.copy(result(shape), given(shape));
  else
    linear.receive(shape.before(), slot(shape, 0)).reduce(result(shape), slot(shape, 0), given(shape));
  if (!is_last(shape)) linear.round().send(shape.next(), result(shape));
  return linear.done();
}

Schedule doubling_scan(const Shape& shape) {
  ScheduleBuilder doubling;
  Slice sum = given(shape);
  if (shape.index == 0) doubling.round().copy(result(shape), sum);
  for (int reach = 1; reach < shape.size; reach *= 2) {
    doubling.round();
    if (shape.index + reach < shape.size) doubling.send(shape.index + reach, sum);
    if (shape.index < reach) continue;
    doubling.receive(shape.index - reach, slot(shape, 0)).reduce(result(shape), slot(shape, 0), sum);
    sum = result(shape);
  }
  return doubling.done();
}

// Computes the sum over the members before `last`.
Schedule flat(const Shape& shape, int last) {
  const std::vector<Slice> all = side_by_side(shape, given(shape), last);
  ScheduleBuilder flat;
  flat.round();
  for (int peer = shape.index + 1; peer < shape.size; ++peer) flat.send(peer, given(shape));
  for (int peer = 0; peer < shape.index; ++peer) flat.receive(peer, all[static_cast<std::size_t>(peer)]);
  if (last > 0) reduce_balanced(flat, all, result(shape));
  return flat.done();
}

Schedule flat_scan(const Shape& shape) { return flat(shape, shape.index + 1); }
Schedule flat_exscan(const Shape& shape) { return flat(shape, shape.index); }

// Member 0 sends in every round. The number of members that do not send doubles each time.
Cost cost_of_doubling(const Shape& shape) {
  const auto rounds = static_cast<std::size_t>(doublings(shape.size));
  std::size_t messages = 0;
  for (int reach = 1; reach < shape.size; reach *= 2) messages += static_cast<std::size_t>(shape.size - reach);
  return {rounds, rounds * shape.count, messages * shape.count};
}

Cost scan_cost_of_flat(const Shape& shape) {
  const auto after = static_cast<std::size_t>(shape.size - 1);  // members after member 0
  return {std::min<std::size_t>(after, 1), after * shape.count, (after + 1) * after / 2 * shape.count};
}

constexpr AlgorithmProperties scan_order{.order = true};
constexpr AlgorithmProperties scan_chain{.order = true, .relays = true};
constexpr AlgorithmProperties scan_tree{.order = true, .balanced = true};

constexpr std::array<Algorithm, 6> scan_table = {{
    {Collective::scan, "linear", linear_scan, cost_of_linear, scan_chain},
    {Collective::scan, "recursive_doubling", doubling_scan, cost_of_doubling, scan_order},
    {Collective::scan, "flat_balanced", flat_scan, scan_cost_of_flat, scan_tree},
    {Collective::exscan, "linear", linear_exscan, cost_of_linear, scan_chain},
    {Collective::exscan, "recursive_doubling", doubling_exscan, cost_of_doubling, scan_order},
    {Collective::exscan, "flat_balanced", flat_exscan, scan_cost_of_flat, scan_tree},
}};

}  // namespace

Schedule linear_exscan(const Shape& shape) {
  ScheduleBuilder linear;
  linear.round();
  if (shape.index == 0) return shape.size == 1 ? linear.done() : linear.send(shape.next(), given(shape)).done();
  if (is_last(shape)) return linear.receive(shape.before(), result(shape)).done();
  // The output may be the input, so the sum is computed before the output is written.
  linear.receive(shape.before(), slot(shape, 0)).reduce(slot(shape, 1), slot(shape, 0), given(shape));
  linear.copy(result(shape), slot(shape, 0));
  linear.round().send(shape.next(), slot(shape, 1));
  return linear.done();
}

Cost cost_of_linear(const Shape& shape) {
  const auto rounds = static_cast<std::size_t>(shape.size - 1);
  return {rounds, std::min<std::size_t>(rounds, 1) * shape.count, rounds * shape.count};
}

// Slot 1 holds the sum with me, as long as a member still needs it; the output holds the sum without me.
Schedule doubling_exscan(const Shape& shape) {
  ScheduleBuilder doubling;
  Slice with_me = given(shape);
  for (int reach = 1; reach < shape.size; reach *= 2) {
    doubling.round();
    if (shape.index + reach < shape.size) doubling.send(shape.index + reach, with_me);
    if (shape.index < reach) continue;
    doubling.receive(shape.index - reach, slot(shape, 0));
    if (shape.index + 2 * reach < shape.size) {
      doubling.reduce(slot(shape, 1), slot(shape, 0), with_me);
      with_me = slot(shape, 1);
    }
    if (reach == 1)
      doubling.copy(result(shape), slot(shape, 0));
    else
      doubling.reduce(result(shape), slot(shape, 0), result(shape));
  }
  return doubling.done();
}

Cost cost_of_doubling_exscan(const Shape& shape) { return cost_of_doubling(shape); }

std::span<const Algorithm> scan_algorithms() { return scan_table; }

}  // namespace lockstep
