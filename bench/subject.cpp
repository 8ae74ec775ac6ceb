// SPDX-License-Identifier: Apache-2.0
// Holds nccl-tests' rules for sizes and bandwidths, so that numbers can be compared with theirs.
#include "bench/subject.hpp"

#include <algorithm>
#include <limits>

#include "collectives/types.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

using enum Collective;

bool is_logical(ReduceOp op) { return op >= ReduceOp::logical_and && op <= ReduceOp::logical_xor; }
bool is_bitwise(ReduceOp op) { return op >= ReduceOp::bit_and && op <= ReduceOp::bit_xor; }

// Returns a member's share in unequal forms. It differs from the mean by half of it.
std::size_t unequal_share(std::size_t count, int position, int members) {
  if (position == members - 1 && members % 2 == 1) return count;
  return position % 2 == 0 ? count - count / 2 : count + count / 2;
}

}  // namespace

Subject subject_of(GradientList gradients) {
  Subject subject{.collective = all_reduce, .in_place = true, .count = gradients.count};
  subject.gradients = std::make_shared<const GradientList>(std::move(gradients));
  return subject;
}

bool has_blocks(Collective collective) {
  switch (collective) {
    case all_reduce:
    case reduce:
    case broadcast:
    case scan:
    case exscan:
    case barrier:
    case sendrecv:
      return false;
    default:
      return true;
  }
}

bool waits_for_all(Collective collective) {
  return collective == all_reduce || collective == all_gather || collective == all_gather_v ||
         collective == reduce_scatter || collective == reduce_scatter_v || collective == all_to_all ||
         collective == all_to_all_v || collective == barrier;
}

std::size_t Subject::count_between(int from, int to, int members) const {
  if (!is_unequal(collective)) return count;
  if (collective == all_to_all_v) return unequal_share(count, (from + to) % members, members);
  const bool gathers = collective == all_gather_v || collective == gather_v;
  return unequal_share(count, gathers ? from : to, members);
}

std::string why_not(const Subject& subject) {
  if (subject.in_place && (is_unequal(subject.collective) || subject.collective == sendrecv))
    return text(to_string(subject.collective), " is measured out of place only");
  if (!reduces(subject.collective)) return {};
  const bool complex = subject.type == DataType::c64 || subject.type == DataType::c128;
  const bool whole = subject.type <= DataType::u64;
  const ReduceOp op = subject.op;
  if (op == ReduceOp::user || op == ReduceOp::premul_sum) return text(to_string(op), " is not measured");
  if (complex && op != ReduceOp::sum && op != ReduceOp::prod && op != ReduceOp::avg)
    return "complex numbers have sum, prod and avg only";
  if ((is_logical(op) || is_bitwise(op)) && !whole) return "logical and bitwise operations are for integers";
  if (op == ReduceOp::avg && (subject.collective == scan || subject.collective == exscan))
    return "an avg of a part of the members is not defined";
  return {};
}

std::size_t count_of(Collective collective, DataType type, std::uint64_t bytes, int members) {
  const std::uint64_t blocks = has_blocks(collective) ? static_cast<std::uint64_t>(members) : 1;
  return bytes / (size_of(type) * blocks);
}

std::uint64_t bytes_of(const Subject& subject, int members) {
  const std::uint64_t blocks = has_blocks(subject.collective) ? static_cast<std::uint64_t>(members) : 1;
  return subject.collective == barrier ? 0 : subject.count * size_of(subject.type) * blocks;
}

double bus_factor(Collective collective, int members) {
  const double n = members;
  if (collective == all_reduce) return 2 * (n - 1) / n;
  if (has_blocks(collective)) return (n - 1) / n;
  return 1;
}

std::uint64_t memory_of(const Subject& subject, int members) {
  constexpr std::uint64_t most = std::numeric_limits<std::uint64_t>::max() / 16;
  const std::uint64_t all = std::min(bytes_of(subject, members), most);
  const std::uint64_t largest = is_unequal(subject.collective) ? all + all / 2 : all;
  return std::max<std::uint64_t>((subject.in_place ? 1 : 2) * largest, 1);
}

}  // namespace lockstep::bench
