// SPDX-License-Identifier: Apache-2.0
// Stores expressions as trees with sets of members, and memory as ranges that merge when their values are equal.
#include "tests/collectives/symbols.hpp"

#include <algorithm>
#include <bit>

#include "collectives/algorithms/algorithms.hpp"

namespace lockstep::symbols {

Expressions::Expressions(int size) : width_((static_cast<std::size_t>(size) + 63) / 64) {
  words_.resize(static_cast<std::size_t>(size) * width_);
  for (int member = 0; member < size; ++member) {
    nodes_.push_back({member, member + 1, true});
    const auto bit = static_cast<std::size_t>(member);
    words(static_cast<Expression>(member))[bit / 64] |= std::uint64_t{1} << (bit % 64);
  }
}

bool Expressions::disjoint(Expression left, Expression right) const {
  for (std::size_t i = 0; i < width_; ++i) {
    if ((words(left)[i] & words(right)[i]) != 0) return false;
  }
  return true;
}

Expression Expressions::combine(Expression left, Expression right) {
  const std::uint64_t key = (std::uint64_t{left} << 32U) | right;
  const auto next = static_cast<Expression>(nodes_.size());
  const auto [found, fresh] = known_.try_emplace(key, next);
  if (!fresh) return found->second;
  const ExpressionNode& a = nodes_[left];
  const ExpressionNode& b = nodes_[right];
  nodes_.push_back({a.first, b.last, a.in_order && b.in_order && a.last == b.first});
  words_.resize(words_.size() + width_);
  for (std::size_t i = 0; i < width_; ++i) words(next)[i] = words(left)[i] | words(right)[i];
  return next;
}

Expression Expressions::balanced(int first, int last) {
  if (last - first == 1) return static_cast<Expression>(first);
  const int middle = balanced_middle(first, last);
  const Expression left = balanced(first, middle);
  return combine(left, balanced(middle, last));
}

bool Expressions::holds_exactly(Expression all, int first, int last) const {
  int held = 0;
  for (std::size_t i = 0; i < width_; ++i) held += std::popcount(words(all)[i]);
  if (held != last - first) return false;
  for (auto member = static_cast<std::size_t>(first); member < static_cast<std::size_t>(last); ++member) {
    if ((words(all)[member / 64] >> (member % 64) & 1U) == 0) return false;
  }
  return true;
}

void SymbolicMemory::set(std::int64_t begin, std::int64_t end, SymbolicValue value) {
  if (begin == end) return;
  auto first = std::ranges::lower_bound(pieces_, begin, {}, &SymbolicRange::end);  // ends at or after begin
  if (first != pieces_.end() && first->end == begin && first->value != value) ++first;
  auto last = std::ranges::upper_bound(pieces_, end, {}, &SymbolicRange::begin);  // begins after end
  if (last != pieces_.begin() && std::prev(last)->begin == end && std::prev(last)->value != value) --last;
  SymbolicRange fresh{begin, end, value};
  SymbolicRange pieces[3];
  std::size_t count = 0;
  if (first < last) {
    const SymbolicRange before = *first;
    const SymbolicRange after = *std::prev(last);
    if (before.value == value)
      fresh.begin = std::min(fresh.begin, before.begin);
    else if (before.begin < begin)
      pieces[count++] = {before.begin, begin, before.value};
    if (after.value == value) fresh.end = std::max(fresh.end, after.end);
    pieces[count++] = fresh;
    if (after.value != value && after.end > end) pieces[count++] = {end, after.end, after.value};
  } else {
    pieces[count++] = fresh;
    last = first;
  }
  const auto replaced = static_cast<std::size_t>(last - first);
  const std::size_t kept = std::min(replaced, count);
  std::copy_n(pieces, kept, first);
  if (count > replaced)
    pieces_.insert(first + static_cast<std::ptrdiff_t>(kept), pieces + kept, pieces + count);
  else
    pieces_.erase(first + static_cast<std::ptrdiff_t>(kept), last);
}

void SymbolicMemory::get(std::int64_t begin, std::int64_t end, std::vector<SymbolicRange>& pieces) const {
  pieces.clear();
  std::int64_t at = begin;
  for (auto each = std::ranges::upper_bound(pieces_, begin, {}, &SymbolicRange::end);
       each != pieces_.end() && each->begin < end; ++each) {
    if (each->begin > at) pieces.push_back({at, each->begin, {}});
    pieces.push_back({std::max(at, each->begin), std::min(end, each->end), each->value});
    at = pieces.back().end;
  }
  if (at < end) pieces.push_back({at, end, {}});
}

}  // namespace lockstep::symbols
