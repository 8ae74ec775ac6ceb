// SPDX-License-Identifier: Apache-2.0
// Counts how Lockstep does against the baselines of a run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

// Returns the baseline of that name in the row; null if it has none. The row owns it.
const Baseline* baseline_of(const Row& row, std::string_view name);

// Returns true for a variant of Lockstep itself, such as "reproducible" or "symmetric".
bool is_own_way(std::string_view baseline);
// Returns false for a plain copy, because no collective can be as fast, and for Lockstep's own variants.
bool is_rival(std::string_view baseline);

// Tells the faster side, by the interval of the ratio.
enum class FasterSide : std::uint8_t { ours_faster, equal, theirs_faster };
FasterSide faster_side_of(const Ratio& ratio);

// Counts the rows in which Lockstep is faster, equal and slower than a baseline.
struct Score {
  std::string baseline;
  std::size_t faster = 0;
  std::size_t equal = 0;
  std::size_t slower = 0;
  const Row* worst = nullptr;  // the row with the smallest ratio among the slower; null if there is none
};
std::vector<Score> scores_of(const BenchRun& run);

}  // namespace lockstep::bench
