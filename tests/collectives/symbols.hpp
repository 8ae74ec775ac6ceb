// SPDX-License-Identifier: Apache-2.0
// Holds the symbols that stand for data in prove(). Expressions over the members' contributions are each stored once,
// and memory holds them by ranges. Only the proof uses it.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

namespace lockstep::symbols {

// Is the number of an expression in an Expressions object.
using Expression = std::uint32_t;
inline constexpr Expression unset = ~Expression{0};

// Stores sums over members by structure, so that equal expressions have equal numbers. Expression i < size is member
// i's own contribution.
class Expressions {
 public:
  explicit Expressions(int size);

  // True if no member contributes to both.
  bool disjoint(Expression left, Expression right) const;
  // Returns the expression "left op right"; the two must be disjoint.
  Expression combine(Expression left, Expression right);
  // Returns the balanced tree over the members [first, last).
  Expression balanced(int first, int last);
  // True if the expression holds exactly the contributions of [first, last), in any order and structure.
  bool holds_exactly(Expression all, int first, int last) const;
  // True if every left operand comes before its right one, without a gap.
  bool in_order(Expression each) const { return nodes_[each].in_order; }

 private:
  struct ExpressionNode {
    int first;
    int last;       // of an ordered one: it covers the members [first, last)
    bool in_order;  // every left operand comes before its right one, without a gap
  };
  std::uint64_t* words(Expression each) { return &words_[each * width_]; }
  const std::uint64_t* words(Expression each) const { return &words_[each * width_]; }

  std::size_t width_;  // words of 64 members in a set
  std::vector<ExpressionNode> nodes_;
  std::vector<std::uint64_t> words_;  // the members of each expression, a bit each
  std::unordered_map<std::uint64_t, Expression> known_;
};

// Is the value of a range of memory: element p holds element p + shift of the members' contributions.
struct SymbolicValue {
  Expression expression = unset;
  std::int64_t shift = 0;
  bool operator==(const SymbolicValue&) const = default;
};

// Is a range [begin, end) of elements with one value.
struct SymbolicRange {
  std::int64_t begin;
  std::int64_t end;
  SymbolicValue value;
  bool operator==(const SymbolicRange&) const = default;
};

// Holds the values of one memory by ranges; elements that were never written are unset.
class SymbolicMemory {
 public:
  // Writes a value to [begin, end).
  void set(std::int64_t begin, std::int64_t end, SymbolicValue value);
  // Returns the ranges in [begin, end) in `pieces`, in order and without gaps; ranges that were never written are
  // unset.
  void get(std::int64_t begin, std::int64_t end, std::vector<SymbolicRange>& pieces) const;

 private:
  std::vector<SymbolicRange> pieces_;  // ascending and disjoint; neighbours differ
};

}  // namespace lockstep::symbols
