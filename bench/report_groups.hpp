// SPDX-License-Identifier: Apache-2.0
// Groups rows for charts: all sizes of a collective, type and operation. Several launches at one
// size become one point: the geometric mean, and an interval that spans theirs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare.hpp"
#include "bench/row.hpp"
#include "bench/scores.hpp"

namespace lockstep::bench {

// Holds the rows of one chart. The rows belong to the run.
struct RowGroup {
  RowKey key;                    // its `bytes` are not used
  std::string title;             // "all_reduce f32 sum"
  std::vector<const Row*> rows;  // by size, then launch
};

// Returns the names of baselines, in the order in which they first appear.
std::vector<std::string> baselines_of(const std::vector<const Row*>& rows);

std::string title_of(const RowKey& key);

// Returns the groups that are worth a chart. They point into the run, which must outlive them.
std::vector<RowGroup> groups_of(const BenchRun& run);

// Holds the value of a row that a RowReader selects. A reader returns nothing if the row has no such measurement.
struct RowValue {
  double value = 0;
  Interval interval;
};
using RowReader = std::function<std::optional<RowValue>(const Row& row)>;

// Holds one point of a curve.
struct CurvePoint {
  std::uint64_t bytes = 0;
  double value = 0;
  Interval interval;
  std::size_t launches = 1;
};

// Returns the points above zero, by size.
std::vector<CurvePoint> points_of(const std::vector<const Row*>& rows, const RowReader& look);

}  // namespace lockstep::bench
