// SPDX-License-Identifier: Apache-2.0
// Formats the output of a bench: a table whose first columns are those of nccl-tests, in their order. Lines that begin
// with # are no results; scripts that read nccl-tests' tables skip them. It has no colours. A cell that is too wide
// takes blanks from the next, so that the columns after it keep their places.
#pragma once

#include <string>

#include "bench/row.hpp"

namespace lockstep::bench {

// Returns the configuration and the column heads. It needs no rows, so that it can be printed before them.
std::string header(const BenchRun& run);

// Returns the line of a row, and a line for each baseline after the first. If the subject differs from that of
// `before`, a line that names the subject comes first.
std::string line(const Row& row, const Row* before = nullptr);

// Returns the verdict, the counts, the exit code and the next step.
std::string footer(const BenchRun& run);

}  // namespace lockstep::bench
