// SPDX-License-Identifier: Apache-2.0
// Is the later of two runs faster or slower than the earlier? Row by row with intervals, corrected for the number of
// rows, and with a refusal where the data cannot bear a verdict. It judges values; reading files is not its business.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "bench/row.hpp"

namespace lockstep::bench {

enum class Verdict : std::uint8_t {
  faster,        // the later run, by more than the tolerance
  slower,        // the later run, by more than the tolerance
  same,          // the whole interval is within the tolerance
  cannot_tell,   // the interval is too wide, or across the tolerance
  inconclusive,  // the data cannot bear a verdict
};

struct CompareOptions {
  double tolerance = 0.05;  // a change of time up to this is none
  double alpha = 0.05;      // the chance of one false "faster" or "slower" among all rows
  bool force = false;       // a verdict from one launch, although launches differ
};

// What two rows must share to be compared.
struct RowKey {
  std::string collective;
  std::string type;
  std::string op;
  std::optional<int> root;
  bool in_place = false;
  bool cold = false;
  std::uint64_t bytes = 0;
  bool operator==(const RowKey&) const = default;
};
RowKey key_of(const Row& row);

struct Refusal {
  std::string reason;  // a clause: "the later run has one launch only"
  std::string remedy;  // a sentence
  bool operator==(const Refusal&) const = default;
};

struct ComparedRow {
  RowKey key;
  double a_us = 0;  // medians, over launches the geometric mean of them
  double b_us = 0;
  double ratio = 1;  // a / b, so above 1 the later run is the faster
  Interval ci;
  double p_value = 1;  // of such a ratio, were the true change within the tolerance
  Verdict verdict = Verdict::inconclusive;
  std::optional<Refusal> refusal;  // exactly where inconclusive, unless the comparison as a whole is refused
};

struct Comparison {
  std::string a;  // version, commit and start of the earlier run
  std::string b;
  std::vector<ComparedRow> rows;  // of a collective all sizes in ascending order
  std::size_t only_in_a = 0;      // keys that have no partner
  std::size_t only_in_b = 0;
  double tolerance = 0;
  // Slower if one row is; else inconclusive if all rows are; else "cannot tell" if one row could not be told; else
  // faster if one row is; else same.
  Verdict verdict = Verdict::inconclusive;
  std::optional<Refusal> refusal;  // exactly where inconclusive
};

Comparison compare(const BenchRun& a, const BenchRun& b, const CompareOptions& options = {});

// "faster", ..., "cannot tell", "inconclusive".
std::string_view word_of(Verdict verdict);

// The verdict and what to do next.
std::string verdict_line(const Comparison& comparison);

// A table for people; the last line is the verdict and what to do next.
std::string to_text(const Comparison& comparison);

}  // namespace lockstep::bench
