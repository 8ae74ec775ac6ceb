// SPDX-License-Identifier: Apache-2.0
// Divides members into groups.
#include "collectives/communicator/member_groups.hpp"

#include <algorithm>
#include <bit>

namespace lockstep::detail {

MemberGroups::MemberGroups(std::span<const int> numbers) {
  std::vector<int> known;
  for (std::size_t member = 0; member < numbers.size(); ++member) {
    const auto found = std::ranges::find(known, numbers[member]);
    const auto group = static_cast<std::size_t>(found - known.begin());
    if (found == known.end()) {
      known.push_back(numbers[member]);
      groups_.emplace_back();
    }
    places_.push_back({static_cast<int>(group), static_cast<int>(groups_[group].size())});
    groups_[group].push_back(static_cast<int>(member));
  }
}

bool MemberGroups::is_even() const {
  return std::ranges::all_of(groups_, [&](const auto& group) { return group.size() == groups_.front().size(); });
}

bool MemberGroups::is_in_order() const { return std::ranges::is_sorted(by_group()); }

// Allows a shorter last group: the balanced tree is cut at the largest power of two, and the rest comes last.
bool MemberGroups::is_aligned() const {
  const std::size_t each = groups_.front().size();
  const auto is_whole = [&](const auto& group) { return group.size() == each; };
  return is_in_order() && std::has_single_bit(each) && groups_.back().size() <= each &&
         std::all_of(groups_.begin(), groups_.end() - 1, is_whole);
}

std::vector<int> MemberGroups::by_group() const {
  std::vector<int> all;
  for (const auto& group : groups_) all.insert(all.end(), group.begin(), group.end());
  return all;
}

}  // namespace lockstep::detail
