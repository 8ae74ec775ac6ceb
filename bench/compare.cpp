// SPDX-License-Identifier: Apache-2.0
// Compares times as logarithms: a ratio is then a difference, and noise is about symmetric. The spread between launches
// counts if it is known. A process keeps its memory, links and neighbours as long as it lives. So the
// interval within one launch is too short for a verdict on a version.
#include "bench/compare.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>

#include "bench/number_text.hpp"
#include "bench/statistics.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {

namespace {

constexpr std::size_t enough_samples = 10;
constexpr double p_of_interval = 0.05;
constexpr double normal_reach = 1.959964;  // half of a 95 % interval, in standard errors

// Holds the rows of one key, one for each launch.
struct LaunchRows {
  std::vector<const Row*> a;
  std::vector<const Row*> b;
};

struct RowKeyOrder {
  static auto order(const RowKey& key) {
    return std::tie(key.collective, key.type, key.op, key.root, key.in_place, key.cold, key.bytes);
  }
  bool operator()(const RowKey& a, const RowKey& b) const { return order(a) < order(b); }
};

// Holds the logarithm of a time and its uncertainty.
struct Estimate {
  double log_time = 0;
  double variance = 0;
  std::size_t degrees_of_freedom = 1;
};

std::string name_of(const BenchRun& run) {
  return printable(
      text(run.version, run.commit.empty() ? "" : " ", run.commit, run.started.empty() ? "" : ", ", run.started));
}

// Returns all processors of the run, because nodes may differ.
std::string cpu_of(const BenchRun& run) {
  std::vector<std::string> all;
  for (const Fact& fact : run.machine) {
    if (fact.name == "cpu") all.push_back(fact.value);
  }
  return all.empty() ? "unknown" : printable(join(all, ", "));
}

std::string size_of(const BenchRun& run) {
  return text(run.ranks, run.ranks == 1 ? " rank" : " ranks", " on ", run.nodes, run.nodes == 1 ? " node" : " nodes");
}

// Returns the reason why no rows of these runs can be compared; nothing if they can.
std::optional<Refusal> refusal_of_runs(const BenchRun& a, const BenchRun& b) {
  if (a.ranks != b.ranks || a.nodes != b.nodes) {
    return Refusal{.reason = text("the earlier run had ", size_of(a), ", the later ", size_of(b)),
                   .remedy = "Measure both with as many ranks on as many nodes."};
  }
  if (cpu_of(a) != cpu_of(b)) {
    return Refusal{.reason = text("the machines differ: cpu ", cpu_of(a), " against ", cpu_of(b)),
                   .remedy = "Measure both versions on one machine."};
  }
  if (a.oversubscribed != b.oversubscribed) {
    return Refusal{.reason = text("the ", a.oversubscribed ? "earlier" : "later",
                                  " run had more ranks than cores, the other had not"),
                   .remedy = "Measure both with a core for every rank."};
  }
  return std::nullopt;
}

// Returns the reason why these rows of one run allow no verdict. `run` is "earlier" or "later".
std::optional<Refusal> refusal_of_rows(std::span<const Row* const> rows, const std::string& run, bool force) {
  std::set<int> launches;
  for (const Row* row : rows) {
    if (row->check.wrong > 0 || !row->check.ranks_equal) {
      return Refusal{.reason = text("the ", run, " run has wrong results here"),
                     .remedy = "Correct the results first: the speed of a wrong one means nothing."};
    }
    if (row->noise.noisy) {
      return Refusal{.reason = text("the ", run, " run is noisy here"),
                     .remedy = "Measure it again while the machine has nothing else to do."};
    }
    if (row->time.n < enough_samples) {
      return Refusal{.reason = text("the ", run, " run has fewer than ", enough_samples, " samples here"),
                     .remedy = "Measure it again with more time for each size."};
    }
    if (!(row->time.median > 0 && row->time.ci.low > 0 && std::isfinite(row->time.ci.high))) {
      return Refusal{.reason = text("the ", run, " run has times here that are not above zero"),
                     .remedy = "Measure it again with larger sizes: the clock is too coarse for these."};
    }
    if (!launches.insert(row->launch).second) {
      return Refusal{.reason = text("the ", run, " run has this row twice in launch ", row->launch),
                     .remedy = "Compare files that hold each case once in every launch."};
    }
  }
  if (launches.size() < 2 && !force) {
    return Refusal{
        .reason = text("the ", run, " run has one launch only, so how much launches differ is not known"),
        .remedy =
            "Measure it three times and name all files (a1.json,a2.json,a3.json), or take one as it is with --force."};
  }
  return std::nullopt;
}

// Estimates the time over launches. Its variance is that between launches, or that within them if it is larger.
Estimate estimate_of(std::span<const Row* const> rows) {
  const auto launches = static_cast<double>(rows.size());
  Estimate estimate;
  double within = 0;
  std::size_t samples = 0;
  for (const Row* row : rows) {
    estimate.log_time += std::log(row->time.median) / launches;
    const double error = std::log(row->time.ci.high / row->time.ci.low) / (2 * normal_reach);
    within += error * error / (launches * launches);
    samples += row->time.n;
  }
  estimate.variance = within;
  estimate.degrees_of_freedom = std::max<std::size_t>(samples, 2) - 1;
  if (rows.size() < 2) return estimate;
  double between = 0;
  for (const Row* row : rows) {
    const double distance = std::log(row->time.median) - estimate.log_time;
    between += distance * distance / (launches - 1) / launches;
  }
  // The larger of both spreads counts. Few launches may look alike by chance, and must not feign certainty.
  estimate.degrees_of_freedom = rows.size() - 1;
  estimate.variance = std::max(within, between);
  return estimate;
}

// Returns Welch's degrees of freedom of a difference, rounded down.
std::size_t degrees_of_difference(const Estimate& a, const Estimate& b) {
  const auto part = [](const Estimate& side) {
    return side.variance * side.variance / static_cast<double>(side.degrees_of_freedom);
  };
  const double parts = part(a) + part(b);
  if (!(parts > 0)) return std::min(a.degrees_of_freedom, b.degrees_of_freedom);
  const double variance = a.variance + b.variance;
  return std::max<std::size_t>(1, static_cast<std::size_t>(variance * variance / parts));
}

// Sets the ratio, its interval, and the chance that a change within the tolerance would look like this.
void fill_numbers(ComparedRow& row, const LaunchRows& pair, double tolerance) {
  const Estimate a = estimate_of(pair.a);
  const Estimate b = estimate_of(pair.b);
  row.a_us = std::exp(a.log_time);
  row.b_us = std::exp(b.log_time);
  const double difference = a.log_time - b.log_time;
  const double error = std::sqrt(a.variance + b.variance);
  row.ci = {.low = 0, .high = std::numeric_limits<double>::infinity()};
  if (!std::isfinite(difference) || !std::isfinite(error)) return;
  row.ratio = std::exp(difference);
  const std::size_t degrees = degrees_of_difference(a, b);
  const double reach = student_t(p_of_interval, degrees) * error;
  row.ci = {.low = std::exp(difference - reach), .high = std::exp(difference + reach)};
  const double excess = std::abs(difference) - std::log1p(tolerance);
  if (excess > 0) row.p_value = error > 0 ? student_p(excess / error, degrees) : 0;
}

// A row changed only if both the corrected test and the whole interval say so.
Verdict verdict_of(const ComparedRow& row, bool beyond, double tolerance) {
  if (beyond && row.ci.low > 1 + tolerance) return Verdict::faster;
  if (beyond && row.ci.high < 1 / (1 + tolerance)) return Verdict::slower;
  if (row.ci.low >= 1 / (1 + tolerance) && row.ci.high <= 1 + tolerance) return Verdict::same;
  return Verdict::cannot_tell;
}

// Gives a verdict to each row without a refusal, with Holm's correction over just these.
void judge_rows(std::vector<ComparedRow>& rows, const CompareOptions& options) {
  std::vector<ComparedRow*> judged;
  std::vector<double> chances;
  for (ComparedRow& row : rows) {
    if (row.refusal) continue;
    judged.push_back(&row);
    chances.push_back(row.p_value);
  }
  const std::vector<bool> beyond = holm(chances, options.alpha);
  for (std::size_t i = 0; i < judged.size(); ++i) {
    judged[i]->verdict = verdict_of(*judged[i], beyond[i], options.tolerance);
  }
}

std::size_t count_verdicts(const Comparison& comparison, Verdict verdict) {
  return static_cast<std::size_t>(std::count_if(comparison.rows.begin(), comparison.rows.end(),
                                                [&](const ComparedRow& row) { return row.verdict == verdict; }));
}

// One slower row makes the run slower.
Verdict verdict_of(const Comparison& comparison) {
  if (count_verdicts(comparison, Verdict::slower) > 0) return Verdict::slower;
  const std::size_t inconclusive = count_verdicts(comparison, Verdict::inconclusive);
  if (inconclusive == comparison.rows.size()) return Verdict::inconclusive;
  if (inconclusive + count_verdicts(comparison, Verdict::cannot_tell) > 0) return Verdict::cannot_tell;
  return count_verdicts(comparison, Verdict::faster) > 0 ? Verdict::faster : Verdict::same;
}

// Returns "all_reduce f32 sum in place", with only the properties that the row has.
std::string compared_title(const RowKey& key) {
  std::string title = printable(key.collective);
  if (!key.type.empty()) title += text(" ", printable(key.type));
  if (!key.op.empty()) title += text(" ", printable(key.op));
  if (key.root) title += text(" root ", *key.root);
  if (key.in_place) title += " in place";
  if (key.cold) title += " cold";
  return title;
}

using ComparisonCells = std::array<std::string, 7>;

ComparisonCells cells_of(const ComparedRow& row) {
  const std::string reason = row.refusal ? ": " + row.refusal->reason : "";
  return {compared_title(row.key),
          format_bytes(row.key.bytes),
          with_decimals(row.a_us, 2),
          with_decimals(row.b_us, 2),
          with_decimals(row.ratio, 3),
          text("[", with_decimals(row.ci.low, 3), ", ", with_decimals(row.ci.high, 3), "]"),
          text(word_of(row.verdict), reason)};
}

// Aligns the columns: the first and the last left, numbers right.
std::string aligned(std::span<const ComparisonCells> lines) {
  std::array<std::size_t, 7> widths{};
  for (const ComparisonCells& cells : lines) {
    for (std::size_t i = 0; i < cells.size(); ++i) widths[i] = std::max(widths[i], cells[i].size());
  }
  std::string all;
  for (const ComparisonCells& cells : lines) {
    for (std::size_t i = 0; i + 1 < cells.size(); ++i) {
      const std::string blanks(widths[i] - cells[i].size(), ' ');
      all += i == 0 ? text(cells[i], blanks, "  ") : text(blanks, cells[i], "  ");
    }
    all += text(cells.back(), "\n");
  }
  return all;
}

std::string rows_word(std::size_t rows) { return number_text::counted(rows, "row"); }

// Returns the row that has slowed down most, as "all_reduce f32 sum 1 MiB takes 12 % more time".
std::string worst_of(const Comparison& comparison) {
  const ComparedRow* worst = nullptr;
  for (const ComparedRow& row : comparison.rows) {
    if (row.verdict == Verdict::slower && (worst == nullptr || row.ratio < worst->ratio)) worst = &row;
  }
  if (worst == nullptr) return "";
  const auto percent = [](double ratio) { return with_decimals(100 * (1 / ratio - 1), 1); };
  return text(compared_title(worst->key), " of ", format_bytes(worst->key.bytes), " takes ", percent(worst->ratio),
              " % more time [", percent(worst->ci.high), ", ", percent(worst->ci.low), "]");
}

// Returns the last line of the report: counts, the worst row, and the next step.
std::string advice_of(const Comparison& comparison) {
  const std::string within = text(100 * comparison.tolerance, " %");
  const std::size_t cannot_tell = count_verdicts(comparison, Verdict::cannot_tell);
  const std::size_t untold = cannot_tell + count_verdicts(comparison, Verdict::inconclusive);
  const std::string of_all = text(" of ", rows_word(comparison.rows.size()));
  switch (comparison.verdict) {
    case Verdict::slower:
      return text(count_verdicts(comparison, Verdict::slower), of_all, " by more than ", within, "; ",
                  worst_of(comparison), ". Look at that row first",
                  untold > 0 ? text(", and measure again the ", untold, " that could not be told.") : ".");
    case Verdict::faster:
      return text(count_verdicts(comparison, Verdict::faster), of_all, " by more than ", within,
                  ", none slower. Keep the later run to compare the next one with.");
    case Verdict::same:
      return text(rows_word(comparison.rows.size()), ", all within ", within, ". Nothing to do.");
    case Verdict::cannot_tell:
      return text(untold, of_all, ", none of the others slower by more than ", within,
                  cannot_tell > 0 ? ". Measure these with more samples or launches, or allow a larger tolerance."
                                  : ". Follow the reasons of these rows.");
    case Verdict::inconclusive:
      break;
  }
  if (!comparison.refusal) return "nothing was compared.";
  return text(comparison.refusal->reason, ". ", comparison.refusal->remedy);
}

}  // namespace

std::string_view word_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::faster:
      return "faster";
    case Verdict::slower:
      return "slower";
    case Verdict::same:
      return "same";
    case Verdict::cannot_tell:
      return "cannot tell";
    case Verdict::inconclusive:
      break;
  }
  return "inconclusive";
}

RowKey key_of(const Row& row) {
  return {.collective = row.collective,
          .type = row.type,
          .op = row.op,
          .root = row.root,
          .in_place = row.in_place,
          .cold = row.cold,
          .bytes = row.bytes};
}

Comparison compare(const BenchRun& a, const BenchRun& b, const CompareOptions& options) {
  std::map<RowKey, LaunchRows, RowKeyOrder> pairs;
  for (const Row& row : a.rows) pairs[key_of(row)].a.push_back(&row);
  for (const Row& row : b.rows) pairs[key_of(row)].b.push_back(&row);
  Comparison comparison;
  comparison.a = name_of(a);
  comparison.b = name_of(b);
  comparison.tolerance = options.tolerance;
  comparison.refusal = refusal_of_runs(a, b);
  for (const auto& [key, pair] : pairs) {
    if (pair.a.empty() || pair.b.empty()) {
      ++(pair.a.empty() ? comparison.only_in_b : comparison.only_in_a);
      continue;
    }
    ComparedRow row;
    row.key = key;
    fill_numbers(row, pair, options.tolerance);
    row.refusal = refusal_of_rows(pair.a, "earlier", options.force);
    if (!row.refusal) row.refusal = refusal_of_rows(pair.b, "later", options.force);
    comparison.rows.push_back(std::move(row));
  }
  if (comparison.refusal) return comparison;
  judge_rows(comparison.rows, options);
  comparison.verdict = verdict_of(comparison);
  if (comparison.verdict != Verdict::inconclusive) return comparison;
  if (comparison.rows.empty()) {
    comparison.refusal = Refusal{.reason = "the runs have no row in common",
                                 .remedy = "Measure both with the same collectives, sizes and types."};
    return comparison;
  }
  comparison.refusal = comparison.rows.front().refusal;
  comparison.refusal->reason = text("no row has a verdict, the first because ", comparison.refusal->reason);
  return comparison;
}

std::string to_text(const Comparison& comparison) {
  std::vector<ComparisonCells> lines{{"collective", "size", "a (us)", "b (us)", "a / b", "[low, high]", "verdict"}};
  for (const ComparedRow& row : comparison.rows) lines.push_back(cells_of(row));
  std::string all = text("a: ", comparison.a, "\nb: ", comparison.b,
                         "\na / b above 1: b is the faster; in brackets the interval of 95 %\n", aligned(lines));
  if (comparison.only_in_a + comparison.only_in_b > 0) {
    all += text("not compared: ", rows_word(comparison.only_in_a), " only in a, ", rows_word(comparison.only_in_b),
                " only in b\n");
  }
  return text(all, "verdict: ", verdict_line(comparison), "\n");
}

std::string verdict_line(const Comparison& comparison) {
  return text(word_of(comparison.verdict), ": ", advice_of(comparison));
}

}  // namespace lockstep::bench
