// SPDX-License-Identifier: Apache-2.0
// A run for other programs: CSV for spreadsheets and data frames, JUnit XML for continuous integration.
// Both lose something; JSON (run_json.hpp) does not, and only JSON is read again.
#pragma once

#include <cstddef>
#include <span>
#include <string>

#include "bench/row.hpp"

namespace lockstep::bench {

// Long form: a line for each row's own time and one for each of its baselines, told apart by the column
// "candidate"; what is not known is empty. Quoted as RFC 4180 has it, but lines end with a line feed alone.
std::string to_csv(const BenchRun& run);

struct GateFailure {
  std::size_t row = 0;
  std::string message;
};

// A test case for each row, which fails where data are wrong, ranks differ or a gate says so. What belongs
// to no row (an interruption, an exit code that no row explains) is a case of its own.
std::string to_junit(const BenchRun& run, std::span<const GateFailure> failures = {});

}  // namespace lockstep::bench
