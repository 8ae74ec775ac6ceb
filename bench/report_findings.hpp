// SPDX-License-Identifier: Apache-2.0
// Explains a run to its reader: its quality and the next steps. The worst finding comes first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

enum class Tone : std::uint8_t { bad, look, good, note };

// Holds one finding and the next step.
struct ReportFinding {
  Tone tone = Tone::good;
  std::string what;  // the finding, a sentence
  std::string next;  // the next step, a sentence or empty
};

// Returns at least one finding, the worst first.
std::vector<ReportFinding> findings_of(const BenchRun& run);

// Returns "Bad", "Look here", "Good", "Note".
std::string_view word_of(Tone tone);

// Returns true if the row is faster than the limit by so much that the limit is in doubt.
bool beats_limit(const Row& row);

}  // namespace lockstep::bench
