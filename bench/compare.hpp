// SPDX-License-Identifier: Apache-2.0
// Judges if the later of two runs is faster or slower than the earlier. It compares row by row with intervals, and
// corrects for the number of rows. It refuses a verdict if the data cannot support one. It judges values; other files
// read them.
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
  inconclusive,  // the data cannot support a verdict
};

struct CompareOptions {
  double tolerance = 0.05;  // a smaller change of time counts as none
  double alpha = 0.05;      // the probability of one false "faster" or "slower" among all rows
  bool force = false;       // gives a verdict from one launch, although launches differ
};

// Holds the properties that two rows must share to be compared.
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

// Explains why there is no verdict.
struct Refusal {
  std::string reason;  // a clause: "the later run has one launch only"
  std::string remedy;  // a sentence
  bool operator==(const Refusal&) const = default;
};

// Holds one row that both runs have; `a` is the earlier run, `b` the later.
struct ComparedRow {
  RowKey key;
  double a_us = 0;  // median; of several launches the geometric mean of the medians
  double b_us = 0;
  double ratio = 1;  // a / b, so above 1 the later run is the faster
  Interval ci;
  double p_value = 1;  // the probability of such a ratio if the true change is within the tolerance
  Verdict verdict = Verdict::inconclusive;
  std::optional<Refusal> refusal;  // set exactly if inconclusive, unless the whole comparison is refused
};

// Holds the outcome of a comparison of two runs.
struct Comparison {
  std::string a;  // version, commit and start of the earlier run
  std::string b;
  std::vector<ComparedRow> rows;  // all sizes of a collective in ascending order
  std::size_t only_in_a = 0;      // keys without a partner
  std::size_t only_in_b = 0;
  double tolerance = 0;
  // The verdict is slower if one row is; else inconclusive if all rows are. Else it is "cannot tell" if one row is.
  // Else it is faster if one row is; else same.
  Verdict verdict = Verdict::inconclusive;
  std::optional<Refusal> refusal;  // set exactly if inconclusive
};

// Compares the later run `b` with the earlier run `a`. It throws no error for runs that cannot be compared; it refuses
// a verdict.
Comparison compare(const BenchRun& a, const BenchRun& b, const CompareOptions& options = {});

// Returns "faster", ..., "cannot tell", "inconclusive".
std::string_view word_of(Verdict verdict);

// Returns the verdict and the next step for the user.
std::string verdict_line(const Comparison& comparison);

// Returns a table for people; its last line is the verdict and the next step.
std::string to_text(const Comparison& comparison);

}  // namespace lockstep::bench
