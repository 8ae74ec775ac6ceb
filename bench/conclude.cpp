// SPDX-License-Identifier: Apache-2.0
// Derives the verdict and the exit code of a run from its rows.
#include <algorithm>

#include "bench/bench.hpp"
#include "bench/scores.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

// Returns text such as "; against mpi 2 faster, 1 equal, 9 slower".
std::string against(const BenchRun& run) {
  std::string all;
  for (const Score& each : scores_of(run)) {
    if (!is_rival(each.baseline)) continue;
    all += text("; against ", each.baseline, ' ', each.faster, " faster, ", each.equal, " equal, ", each.slower,
                " slower");
  }
  return all;
}

}  // namespace

void conclude(BenchRun& run) {
  const auto rows_with = [&](auto has) { return std::ranges::count_if(run.rows, has); };
  const auto wrong = rows_with([](const Row& row) { return row.check.wrong > 0 || !row.check.ranks_equal; });
  const auto noisy = rows_with([](const Row& row) { return row.noise.noisy; });
  const auto checked = rows_with([](const Row& row) { return row.check.looked_at(); });
  const auto all = static_cast<std::ptrdiff_t>(run.rows.size());
  const auto end = [&](Exit code, std::string verdict) {
    run.exit_code = static_cast<int>(code);
    run.verdict = std::move(verdict);
  };
  const std::string_view rows = all == 1 ? " row" : " rows";
  if (wrong > 0)
    end(Exit::wrong_data, text("wrong data in ", wrong, wrong == 1 ? " row" : " rows"));
  else if (all == 0)
    end(Exit::inconclusive, "nothing was measured");
  else if (run.interrupted)
    end(Exit::inconclusive, "ended early; the rows above are complete");
  else if (2 * noisy > all)
    end(Exit::inconclusive, text(noisy, " of ", all, rows, " were disturbed by other work on the machine"));
  else if (checked < all)
    end(Exit::success, text(all, rows, " measured, and results not checked", against(run)));
  else
    end(Exit::success, text("all results right in ", all, rows, against(run)));
}

}  // namespace lockstep::bench
