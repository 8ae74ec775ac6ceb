// SPDX-License-Identifier: Apache-2.0
// What a bench prints: a table for people whose first columns are those of nccl-tests, in their order. Lines
// that begin with # are no results: scripts that read nccl-tests' tables pass over them. No colours. A cell
// that is too wide takes from the blanks of the next, so that the columns after it stay where they are.
#pragma once

#include <string>

#include "bench/row.hpp"

namespace lockstep::bench {

// What runs on what, and the heads of the columns; asks nothing of the rows, so that it comes before them.
std::string header(const BenchRun& run);

// A row, and a line for each baseline after the first. Before it comes a line that says what is measured,
// where that is another than in the row before.
std::string line(const Row& row, const Row* before = nullptr);

// Verdict, counts, exit code, and what to do next.
std::string footer(const BenchRun& run);

}  // namespace lockstep::bench
