// SPDX-License-Identifier: Apache-2.0
// Implements sets of ranges, which stay ascending and apart.
#include "topology/base/index_set.hpp"

#include <algorithm>

#include "topology/base/text.hpp"

namespace lockstep {

IndexSet::IndexSet(std::initializer_list<int> members) {
  for (const int member : members) insert(member);
}

IndexSet IndexSet::range(int first, int last) {
  IndexSet set;
  if (first <= last) set.ranges_.push_back({first, last});
  return set;
}

std::optional<IndexSet> IndexSet::parse(std::string_view whole, int largest) {
  IndexSet set;
  whole = trim(whole);
  if (whole.empty()) return set;
  for (const std::string& part : split(whole, ',')) {
    const std::size_t dash = part.find('-', 1);
    const auto first = parse_integer(std::string_view(part).substr(0, dash));
    const auto last = dash == std::string::npos ? first : parse_integer(std::string_view(part).substr(dash + 1));
    if (!first || !last || *first < 0 || *last < *first || *last > largest) return std::nullopt;
    set.insert(IndexRange{static_cast<int>(*first), static_cast<int>(*last)});
  }
  return set;
}

void IndexSet::insert(IndexRange range) {
  // Finds the first range that touches or follows the new one, then all that it swallows.
  const auto begin =
      std::ranges::partition_point(ranges_, [&](const IndexRange& each) { return each.last + 1 < range.first; });
  auto end = begin;
  for (; end != ranges_.end() && end->first <= range.last + 1; ++end) {
    range.first = std::min(range.first, end->first);
    range.last = std::max(range.last, end->last);
  }
  ranges_.insert(ranges_.erase(begin, end), range);
}

void IndexSet::insert(int member) { insert(IndexRange{member, member}); }

void IndexSet::insert(const IndexSet& other) {
  for (const IndexRange& range : other.ranges_) insert(range);
}

std::size_t IndexSet::size() const {
  std::size_t all = 0;
  for (const IndexRange& range : ranges_) all += static_cast<std::size_t>(range.last - range.first) + 1;
  return all;
}

bool IndexSet::contains(int member) const {
  const auto found = std::ranges::partition_point(ranges_, [&](const IndexRange& each) { return each.last < member; });
  return found != ranges_.end() && found->first <= member;
}

bool IndexSet::contains(const IndexSet& other) const {
  return std::ranges::all_of(other.ranges_, [&](const IndexRange& inner) {
    const auto found =
        std::ranges::partition_point(ranges_, [&](const IndexRange& each) { return each.last < inner.first; });
    return found != ranges_.end() && found->first <= inner.first && inner.last <= found->last;
  });
}

IndexSet IndexSet::intersect(const IndexSet& other) const {
  IndexSet both;
  for (const IndexRange& a : ranges_) {
    for (const IndexRange& b : other.ranges_) {
      const IndexRange common{std::max(a.first, b.first), std::min(a.last, b.last)};
      if (common.first <= common.last) both.insert(common);
    }
  }
  return both;
}

std::vector<int> IndexSet::members() const {
  std::vector<int> all;
  all.reserve(size());
  for (const IndexRange& range : ranges_) {
    for (int member = range.first; member <= range.last; ++member) all.push_back(member);
  }
  return all;
}

std::string IndexSet::to_string() const {
  std::vector<std::string> parts;
  for (const IndexRange& range : ranges_) {
    parts.push_back(range.first == range.last ? text(range.first) : text(range.first, "-", range.last));
  }
  return join(parts, ",");
}

}  // namespace lockstep
