// SPDX-License-Identifier: Apache-2.0
// A set of small non-negative numbers (ranks, processors), kept as ranges so that ten thousand
// ranks print as "0-9999" and cost one range. A value: comparable, printable.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

struct IndexRange {
  int first;
  int last;  // inclusive
  bool operator==(const IndexRange&) const = default;
};

class IndexSet {
 public:
  IndexSet() = default;
  IndexSet(std::initializer_list<int> members);
  static IndexSet range(int first, int last);

  // "0-3,8,10-11" with every number at most `largest`; nothing when malformed.
  static std::optional<IndexSet> parse(std::string_view whole, int largest = 1 << 24);

  void insert(int member);
  void insert(const IndexSet& other);

  bool empty() const { return ranges_.empty(); }
  std::size_t size() const;
  int first() const { return ranges_.front().first; }
  bool contains(int member) const;
  bool contains(const IndexSet& other) const;
  IndexSet intersect(const IndexSet& other) const;

  std::vector<int> members() const;
  const std::vector<IndexRange>& ranges() const { return ranges_; }
  std::string to_string() const;

  bool operator==(const IndexSet&) const = default;

 private:
  void insert(IndexRange range);

  std::vector<IndexRange> ranges_;  // ascending, with gaps between them
};

}  // namespace lockstep
