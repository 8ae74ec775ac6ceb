// SPDX-License-Identifier: Apache-2.0
// Shows the links of a run on a report's page: matrices of latency and bandwidth with outlined slow pairs, and the same
// in words. Many members are drawn in groups of neighbours; the colour of a cell is that of its worst pair, and the
// page says so.
#pragma once

#include <string>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

inline constexpr std::size_t most_cells = 64;    // along a side of a matrix
inline constexpr std::size_t most_pairs = 4000;  // in the table of all pairs

// Returns the section of the page; an empty string if no link was measured.
std::string links_section(const BenchRun& run);

// Returns the links with `slow` set. They belong to the run.
std::vector<const PairLink*> slow_links(const BenchRun& run);
// Returns "rank 2 (b) and rank 5 (c)", or "rank 0 and rank 1" if the hosts are unknown.
std::string pair_text(const BenchRun& run, const PairLink& link);

}  // namespace lockstep::bench
