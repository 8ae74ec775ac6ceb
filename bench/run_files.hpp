// SPDX-License-Identifier: Apache-2.0
// Writes a run for other programs: CSV for spreadsheets and data frames, JUnit XML for continuous integration. Both
// lose something; JSON (run_json.hpp) does not, and only JSON is read again.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "bench/row.hpp"

namespace lockstep::bench {

// Returns CSV in long form: a line for each row's own time and one for each of its baselines. The column "candidate"
// distinguishes them; unknown values are empty. Quoting follows RFC 4180, but lines end with a line feed alone.
std::string to_csv(const BenchRun& run);

// Names a row of the run that is slower than the gate allows.
struct GateFailure {
  std::size_t row = 0;
  std::string message;
};

// Returns a test case for each row. It fails if data is wrong, if ranks differ, or if `failures` has the row. Problems
// without a row (an interruption, an exit code that no row explains) are cases of their own.
std::string to_junit(const BenchRun& run, std::span<const GateFailure> failures = {});

}  // namespace lockstep::bench
