// SPDX-License-Identifier: Apache-2.0
// Which members are near each other, and which of two ways was found to be the faster one. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "topology/base/text.hpp"

namespace lockstep::detail {

// Groups the members that are near each other.
class MemberGroups {
 public:
  // Members with the same number are near each other; groups are in the order of their first members.
  explicit MemberGroups(std::span<const int> numbers);

  const std::vector<std::vector<int>>& groups() const { return groups_; }
  int group_of(int member) const { return places_[static_cast<std::size_t>(member)].group; }
  int place_of(int member) const { return places_[static_cast<std::size_t>(member)].place; }
  const std::vector<int>& group(int member) const { return groups_[static_cast<std::size_t>(group_of(member))]; }
  int members() const { return static_cast<int>(places_.size()); }
  // All groups have as many.
  bool is_even() const;
  // Members that follow each other are near each other.
  bool is_in_order() const;
  // Every group is a subtree of the balanced tree, and so is what joins them.
  bool is_aligned() const;
  // One group after the other; and the first ones of all groups, then the second ones.
  std::vector<int> by_group() const;
  std::vector<int> by_place() const;

 private:
  struct GroupPosition {
    int group = 0;
    int place = 0;
  };
  std::vector<std::vector<int>> groups_;
  std::vector<GroupPosition> places_;
};

// Two ways of doing the same calls, each of them tried in its turn: the first time of each is not counted, as much is
// made then. What is known is the same on all members.
class Trial {
 public:
  static constexpr std::size_t turns = 6;

  bool is_over() const { return is_over_; }
  // 0 or 1: the one that is to be tried, or that was faster.
  int way() const { return is_over_ ? better_ : static_cast<int>(nanoseconds_.size() % 2); }
  // How long a turn took this member. Whether that was the last one.
  bool took(Duration time);
  const std::vector<std::uint64_t>& nanoseconds() const { return nanoseconds_; }
  // By the longest that any member took, turn by turn.
  void conclude(std::span<const std::uint64_t> longest);

 private:
  std::vector<std::uint64_t> nanoseconds_;
  bool is_over_ = false;
  int better_ = 0;
};

}  // namespace lockstep::detail
