// SPDX-License-Identifier: Apache-2.0
// How ours does against the baselines of a run.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

const Baseline* baseline_of(const Row& row, std::string_view name);

// Ours in another way: reproducible, symmetric, messages, as_is.
bool is_own_way(std::string_view baseline);
// A plain copy is no rival: no collective can be as fast. Nor is ours.
bool is_rival(std::string_view baseline);

// How ours does against a baseline, by the interval of the ratio.
enum class FasterSide : std::uint8_t { ours_faster, equal, theirs_faster };
FasterSide faster_side_of(const Ratio& ratio);

// How often ours is faster, equal and slower than a baseline, and where it is slowest.
struct Score {
  std::string baseline;
  std::size_t faster = 0;
  std::size_t equal = 0;
  std::size_t slower = 0;
  const Row* worst = nullptr;  // of the slower
};
std::vector<Score> scores_of(const BenchRun& run);

}  // namespace lockstep::bench
