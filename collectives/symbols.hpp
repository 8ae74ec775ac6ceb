// SPDX-License-Identifier: Apache-2.0
// Symbols that stand for data in prove: expressions over the members' contributions, each stored once, and
// memory that holds them by ranges. A part of the proof; nothing else uses it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace lockstep::symbols {

using Expression = std::uint32_t;
inline constexpr Expression unset = ~Expression{0};

// Sums over members, by structure: equal expressions have equal numbers. Expression i < size is member i's own
// contribution.
class Expressions {
 public:
  explicit Expressions(int size);

  bool disjoint(Expression left, Expression right) const;
  Expression combine(Expression left, Expression right);  // of disjoint ones
  // The balanced tree over the members [first, last), and every contribution in it.
  Expression balanced(int first, int last);
  bool holds_exactly(Expression all, int first, int last) const;  // contributions, in any order
  bool in_order(Expression each) const { return nodes_[each].in_order; }

 private:
  struct ExpressionNode {
    int first;
    int last;       // of an ordered one: the members [first, last)
    bool in_order;  // every left operand before its right one, without a gap
  };
  std::uint64_t* words(Expression each) { return &words_[each * width_]; }
  const std::uint64_t* words(Expression each) const { return &words_[each * width_]; }

  std::size_t width_;  // words of 64 members
  std::vector<ExpressionNode> nodes_;
  std::vector<std::uint64_t> words_;  // which members, a bit each
  std::unordered_map<std::uint64_t, Expression> known_;
};

// What a range of memory holds: element p is element p + shift of what the contributors gave.
struct SymbolicValue {
  Expression expression = unset;
  std::int64_t shift = 0;
  bool operator==(const SymbolicValue&) const = default;
};

struct SymbolicRange {
  std::int64_t begin;
  std::int64_t end;
  SymbolicValue value;
  bool operator==(const SymbolicRange&) const = default;
};

class SymbolicMemory {
 public:
  void set(std::int64_t begin, std::int64_t end, SymbolicValue value);
  // What lies in [begin, end), in order, without gaps: unset where nobody has written.
  void get(std::int64_t begin, std::int64_t end, std::vector<SymbolicRange>& pieces) const;

 private:
  std::vector<SymbolicRange> pieces_;  // ascending, apart, neighbours differ
};

}  // namespace lockstep::symbols
