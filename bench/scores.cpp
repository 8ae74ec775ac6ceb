// SPDX-License-Identifier: Apache-2.0
// Classifies baselines, and counts the rows in which each side is faster.
#include "bench/scores.hpp"

#include <algorithm>

namespace lockstep::bench {

bool is_own_way(std::string_view baseline) {
  return baseline == "reproducible" || baseline == "symmetric" || baseline == "messages" || baseline == "host" ||
         baseline == "as_is" || baseline == "checked" || baseline == "ring" || baseline == "hierarchical";
}

bool is_rival(std::string_view baseline) { return baseline != "memcpy" && !is_own_way(baseline); }

FasterSide faster_side_of(const Ratio& ratio) {
  if (!(ratio.ci.low > 1 || ratio.ci.high < 1)) return FasterSide::equal;
  return ratio.ci.low > 1 ? FasterSide::ours_faster : FasterSide::theirs_faster;
}

const Baseline* baseline_of(const Row& row, std::string_view name) {
  const auto found = std::ranges::find_if(row.baselines, [&](const Baseline& each) { return each.name == name; });
  return found == row.baselines.end() ? nullptr : &*found;
}

std::vector<Score> scores_of(const BenchRun& run) {
  std::vector<Score> scores;
  for (const Row& row : run.rows) {
    for (const Baseline& each : row.baselines) {
      auto score = std::ranges::find(scores, each.name, &Score::baseline);
      if (score == scores.end()) score = scores.insert(scores.end(), Score{.baseline = each.name});
      const FasterSide standing = faster_side_of(each.ratio);
      ++(standing == FasterSide::ours_faster ? score->faster
         : standing == FasterSide::equal     ? score->equal
                                             : score->slower);
      if (standing != FasterSide::theirs_faster) continue;
      if (score->worst == nullptr || each.ratio.value < baseline_of(*score->worst, each.name)->ratio.value)
        score->worst = &row;
    }
  }
  return scores;
}

}  // namespace lockstep::bench
