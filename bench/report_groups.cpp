// SPDX-License-Identifier: Apache-2.0
// Sorts rows into groups, and turns a group into points of a curve.
#include "bench/report_groups.hpp"

#include <algorithm>
#include <cmath>
#include <map>

#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

// Returns the group of the row, for all sizes.
RowGroup& group_of(std::vector<RowGroup>& groups, const Row& row) {
  RowKey key = key_of(row);
  key.bytes = 0;
  const auto found = std::ranges::find_if(groups, [&](const RowGroup& each) { return each.key == key; });
  if (found != groups.end()) return *found;
  groups.push_back({.key = key, .title = title_of(key)});
  return groups.back();
}

void sort(std::vector<const Row*>& rows) {
  std::ranges::stable_sort(rows, [](const Row* a, const Row* b) {
    return a->bytes != b->bytes ? a->bytes < b->bytes : a->launch < b->launch;
  });
}

}  // namespace

std::string title_of(const RowKey& key) {
  std::string title = key.collective;
  if (!key.type.empty()) title += text(' ', key.type);
  if (!key.op.empty()) title += text(' ', key.op);
  if (key.root) title += text(", root ", *key.root);
  if (key.in_place) title += ", in place";
  if (key.cold) title += ", cold caches";
  return title;
}

std::vector<std::string> baselines_of(const std::vector<const Row*>& rows) {
  std::vector<std::string> names;
  for (const Row* row : rows) {
    for (const Baseline& each : row->baselines) {
      if (std::ranges::find(names, each.name) == names.end()) names.push_back(each.name);
    }
  }
  return names;
}

std::vector<RowGroup> groups_of(const BenchRun& run) {
  std::vector<RowGroup> groups;
  for (const Row& row : run.rows) group_of(groups, row).rows.push_back(&row);
  for (RowGroup& group : groups) sort(group.rows);
  return groups;
}

std::vector<CurvePoint> points_of(const std::vector<const Row*>& rows, const RowReader& look) {
  struct Sum {
    double logarithms = 0;
    Interval interval;
    std::size_t launches = 0;
  };
  std::map<std::uint64_t, Sum> sums;
  for (const Row* row : rows) {
    const auto found = look(*row);
    if (!found || !(found->value > 0) || !std::isfinite(found->value)) continue;
    Sum& sum = sums[row->bytes];
    sum.logarithms += std::log(found->value);
    const Interval& own = found->interval;
    sum.interval =
        sum.launches == 0 ? own : Interval{std::min(sum.interval.low, own.low), std::max(sum.interval.high, own.high)};
    ++sum.launches;
  }
  std::vector<CurvePoint> points;
  for (const auto& [bytes, sum] : sums) {
    const double value = std::exp(sum.logarithms / static_cast<double>(sum.launches));
    points.push_back({bytes, value, sum.interval, sum.launches});
  }
  return points;
}

}  // namespace lockstep::bench
