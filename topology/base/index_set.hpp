// SPDX-License-Identifier: Apache-2.0
// A set of small non-negative numbers (ranks, processors). It is kept as ranges, so that ten thousand ranks print as
// "0-9999" and cost one range.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

// Holds the numbers from `first` to `last`.
struct IndexRange {
  int first;
  int last;  // inclusive
  bool operator==(const IndexRange&) const = default;
};

// Holds a set as a value: two sets are equal if they have the same members.
class IndexSet {
 public:
  IndexSet() = default;
  IndexSet(std::initializer_list<int> members);
  // Returns all numbers from `first` to `last`; an empty set if `last` is smaller.
  static IndexSet range(int first, int last);

  // Parses "0-3,8,10-11"; an empty text is the empty set. Returns nothing if the text is malformed, or a number is
  // above `largest`.
  static std::optional<IndexSet> parse(std::string_view whole, int largest = 1 << 24);

  // Add a member, or all members of another set.
  void insert(int member);
  void insert(const IndexSet& other);

  // Return whether the set has no member, and the number of members.
  bool empty() const { return ranges_.empty(); }
  std::size_t size() const;
  // Returns the smallest member. The set must not be empty.
  int first() const { return ranges_.front().first; }
  bool contains(int member) const;
  bool contains(const IndexSet& other) const;
  IndexSet intersect(const IndexSet& other) const;

  // Return all members in ascending order: one by one, as ranges, and as "0-3,8".
  std::vector<int> members() const;
  const std::vector<IndexRange>& ranges() const { return ranges_; }
  std::string to_string() const;

  bool operator==(const IndexSet&) const = default;

 private:
  void insert(IndexRange range);

  std::vector<IndexRange> ranges_;  // ascending, with gaps between them
};

}  // namespace lockstep
