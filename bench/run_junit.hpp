// SPDX-License-Identifier: Apache-2.0
// Writes a run as JUnit XML for continuous integration. It loses something; JSON (run_json.hpp) does not.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "bench/row.hpp"

namespace lockstep::bench {

// Names a row of the run that is slower than the gate allows.
struct GateFailure {
  std::size_t row = 0;
  std::string message;
};

// Returns a test case for each row. It fails if data is wrong, if ranks differ, or if `failures` has the row. Problems
// without a row (an interruption, an exit code that no row explains) are cases of their own.
std::string to_junit(const BenchRun& run, std::span<const GateFailure> failures = {});

}  // namespace lockstep::bench
