// SPDX-License-Identifier: Apache-2.0
// The links of a run on a report's page: matrices of latency and bandwidth, in which slow pairs are outlined, and the
// same in words. Many members are drawn in groups of neighbours, each cell by its worst pair, which is said.
#pragma once

#include <string>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

inline constexpr std::size_t most_cells = 64;    // of a side
inline constexpr std::size_t most_pairs = 4000;  // in the table of all pairs

// Empty where no link was measured.
std::string links_section(const BenchRun& run);
// The matrices as a picture of their own.
std::string links_svg(const BenchRun& run);

std::vector<const PairLink*> slow_links(const BenchRun& run);
// "rank 2 (b) and rank 5 (c)", "rank 0 and rank 1" where the hosts are not known.
std::string pair_text(const BenchRun& run, const PairLink& link);

}  // namespace lockstep::bench
