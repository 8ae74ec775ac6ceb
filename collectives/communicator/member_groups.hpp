// SPDX-License-Identifier: Apache-2.0
// Groups members by the GPU that they share. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

namespace lockstep::detail {

// Divides members into groups, each of those that share a GPU.
class MemberGroups {
 public:
  // Takes a number for each member: members with equal numbers share one. Groups are in the order of their first
  // members.
  explicit MemberGroups(std::span<const int> numbers);

  // Returns the members of each group.
  const std::vector<std::vector<int>>& groups() const { return groups_; }
  // Returns the number of a member's group, and its place in that.
  int group_of(int member) const { return places_[static_cast<std::size_t>(member)].group; }
  int place_of(int member) const { return places_[static_cast<std::size_t>(member)].place; }
  const std::vector<int>& group(int member) const { return groups_[static_cast<std::size_t>(group_of(member))]; }
  int members() const { return static_cast<int>(places_.size()); }
  // True if all groups have equally many members.
  bool is_even() const;
  // True if every group consists of consecutive members, one group after the other.
  bool is_in_order() const;
  // True if every group is a subtree of the balanced tree, and so is every join of groups.
  bool is_aligned() const;
  // Returns all members, one group after the other.
  std::vector<int> by_group() const;

 private:
  struct GroupPosition {
    int group = 0;
    int place = 0;
  };
  std::vector<std::vector<int>> groups_;
  std::vector<GroupPosition> places_;
};

}  // namespace lockstep::detail
