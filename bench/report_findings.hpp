// SPDX-License-Identifier: Apache-2.0
// What a run means to who reads it: is it good, and what to do next. The worst comes first.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/compare.hpp"
#include "bench/row.hpp"

namespace lockstep::bench {

enum class Tone : std::uint8_t { bad, look, good, note };

struct ReportFinding {
  Tone tone = Tone::good;
  std::string what;  // a sentence
  std::string next;  // what to do; a sentence, or empty
};

// At least one, the worst first. `comparison` is of an earlier run with this one.
std::vector<ReportFinding> findings_of(const BenchRun& run, const Comparison* comparison);

// "Bad", "Look here", "Good", "Note".
std::string_view word_of(Tone tone);

// Faster than the limit by so much that the limit is in doubt.
bool beats_limit(const Row& row);

}  // namespace lockstep::bench
