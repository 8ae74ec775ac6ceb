// SPDX-License-Identifier: Apache-2.0
// Rows that belong on one chart: all sizes of a collective, type and operation, of one run or of two. What several
// launches found at one size is one point: the geometric mean, and an interval that spans theirs.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare.hpp"
#include "bench/row.hpp"
#include "bench/scores.hpp"

namespace lockstep::bench {

struct RowGroup {
  RowKey key;                       // its bytes mean nothing
  std::string title;                // "all_reduce f32 sum"
  std::vector<const Row*> rows;     // by size, then launch
  std::vector<const Row*> earlier;  // of the earlier run
};

// Names, in the order in which they first come.
std::vector<std::string> baselines_of(const std::vector<const Row*>& rows);

std::string title_of(const RowKey& key);

// Only what is worth a line: the values live as long as the runs.
std::vector<RowGroup> groups_of(const BenchRun& run, const BenchRun* earlier);

// What a row says of one thing; nothing where it has not measured it.
struct RowValue {
  double value = 0;
  Interval interval;
};
using RowReader = std::function<std::optional<RowValue>(const Row& row)>;

struct CurvePoint {
  std::uint64_t bytes = 0;
  double value = 0;
  Interval interval;
  std::size_t launches = 1;
};

// Points above zero only, by size.
std::vector<CurvePoint> points_of(const std::vector<const Row*>& rows, const RowReader& look);

}  // namespace lockstep::bench
