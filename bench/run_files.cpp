// SPDX-License-Identifier: Apache-2.0
// Writes each number as the shortest text that reads back as the same number.
#include "bench/run_files.hpp"

#include <array>
#include <charconv>
#include <cmath>

#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

std::string csv_number(double value) {
  if (!std::isfinite(value)) return {};
  std::array<char, 40> buffer{};
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  return {buffer.data(), end};
}

std::string true_or_false(bool yes) { return yes ? "true" : "false"; }

template <class T>
std::string if_any(const std::optional<T>& value) {
  return value ? text(*value) : std::string();
}

// The columns are in the order of what(), the candidate's name and algorithm, times(), its ratio, and own().
constexpr std::string_view csv_head =
    "collective,size_bytes,count,type,op,root,in_place,cache,launch,candidate,algorithm,"
    "n,median_us,ci95_low_us,ci95_high_us,mean_us,min_us,p95_us,p99_us,max_us,mad_us,"
    "ratio,ratio_ci95_low,ratio_ci95_high,blocks,"
    "algbw_gbs,busbw_gbs,limit_us,limit_binding,wrong,ranks_equal,hash,same,"
    "noisy,steal_percent,involuntary_switches,throttled_us,slowest_rank,slowest_percent\n";
constexpr std::size_t own_columns = 14;  // from algbw_gbs: columns of the row itself only
constexpr std::size_t ratio_columns = 4;

std::string csv_cell(const std::string& words) {
  if (words.find_first_of(",\"\r\n") == std::string::npos) return words;
  std::string all = "\"";
  for (const char letter : words) all += letter == '"' ? std::string("\"\"") : std::string(1, letter);
  return all + '"';
}

using CsvCells = std::vector<std::string>;

void append(CsvCells& cells, const CsvCells& more) { cells.insert(cells.end(), more.begin(), more.end()); }

std::string csv_line(const CsvCells& cells) {
  CsvCells quoted;
  quoted.reserve(cells.size());
  for (const std::string& each : cells) quoted.push_back(csv_cell(each));
  return join(quoted, ",") + '\n';
}

CsvCells what(const Row& row) {
  return {row.collective,
          text(row.bytes),
          text(row.count),
          row.type,
          row.op,
          if_any(row.root),
          true_or_false(row.in_place),
          row.cold ? "cold" : "hot",
          text(row.launch)};
}

CsvCells times(const Summary& time) {
  CsvCells cells = {text(time.n), csv_number(time.median), csv_number(time.ci.low), csv_number(time.ci.high)};
  const bool known = time.n > 0;
  for (const double each : {time.mean, time.min, time.p95, time.p99, time.max, time.mad})
    cells.push_back(known ? csv_number(each) : std::string());
  return cells;
}

CsvCells own(const Row& row) {
  return {csv_number(row.algbw),
          csv_number(row.busbw),
          row.limit ? csv_number(row.limit->us) : std::string(),
          row.limit ? row.limit->binding : std::string(),
          text(row.check.wrong),
          true_or_false(row.check.ranks_equal),
          row.check.hash,
          row.check.same ? true_or_false(*row.check.same) : std::string(),
          true_or_false(row.noise.noisy),
          csv_number(row.noise.steal_percent),
          text(row.noise.involuntary_switches),
          csv_number(row.noise.throttled_us),
          if_any(row.slowest_rank),
          row.slowest_rank ? csv_number(row.slowest_percent) : std::string()};
}

// Removes control characters, which XML 1.0 forbids even if they are escaped. Other bytes may not be UTF-8 either.
std::string xml(std::string_view words) {
  std::string all;
  for (const char letter : words) {
    const auto code = static_cast<unsigned char>(letter);
    if (letter == '\n' || letter == '\t') all += ' ';
    if (code >= 0x20 && code != 0x7f) all += code < 0x80 ? letter : '?';
  }
  return xml_escaped(all);
}

std::string baseline_csv(const Row& row, const Baseline& baseline, std::string_view prefix) {
  const Ratio& ratio = baseline.ratio;
  CsvCells cells = what(row);
  append(cells, {text(prefix, baseline.name), baseline.algorithm});
  append(cells, times(baseline.time));
  append(cells, {csv_number(ratio.value), csv_number(ratio.ci.low), csv_number(ratio.ci.high), text(ratio.blocks)});
  append(cells, CsvCells(own_columns));
  return csv_line(cells);
}

// Returns the line of the times by the GPU's clock.
std::string stream_csv(const Row& row, const StreamTiming& times_there) {
  constexpr std::string_view prefix = "stream:";
  CsvCells cells = what(row);
  append(cells, {text(prefix, "lockstep"), row.algorithm});
  append(cells, times(times_there.time));
  append(cells, CsvCells(ratio_columns));
  append(cells, {csv_number(times_there.algbw), csv_number(times_there.busbw)});
  append(cells, CsvCells(own_columns - 2));
  std::string all = csv_line(cells);
  for (const Baseline& each : times_there.baselines) all += baseline_csv(row, each, prefix);
  return all;
}

struct JunitCase {
  std::string group;
  std::string name;
  double seconds = 0;
  std::vector<std::string> problems;
};

// Returns a name that stays the same between runs, so that a history is possible.
std::string case_name(const Row& row) {
  std::string all = text(row.bytes, " B ", row.type);
  if (!row.op.empty()) all += text(' ', row.op);
  if (row.root) all += text(" root ", *row.root);
  return text(all, row.in_place ? " in place" : "", row.cold ? " cold" : " hot",
              row.launch > 1 ? text(" launch ", row.launch) : std::string());
}

std::vector<JunitCase> cases_of(const BenchRun& run, std::span<const GateFailure> failures) {
  std::vector<JunitCase> cases;
  bool explained = false;
  for (const Row& row : run.rows) {
    const bool timed = std::isfinite(row.time.median) && row.time.median > 0;
    JunitCase now{row.collective, case_name(row), timed ? row.time.median * 1e-6 : 0, {}};
    if (row.check.wrong > 0) now.problems.push_back(text(row.check.wrong, " wrong elements"));
    if (!row.check.ranks_equal) now.problems.emplace_back("ranks have unequal results");
    explained = explained || !now.problems.empty();
    cases.push_back(std::move(now));
  }
  JunitCase whole{"run", "the whole run", 0, {}};
  for (const GateFailure& each : failures) {
    explained = true;
    (each.row < run.rows.size() ? cases[each.row] : whole).problems.push_back(each.message);
  }
  if (run.interrupted) whole.problems.emplace_back("interrupted: rows are missing");
  if (run.exit_code != 0 && !explained)
    whole.problems.push_back(text("exit code ", run.exit_code, run.verdict.empty() ? "" : ": ", run.verdict));
  if (!whole.problems.empty()) cases.push_back(std::move(whole));
  return cases;
}

std::string seconds(double value) {
  std::array<char, 400> buffer{};
  const auto [end, error] =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, std::chars_format::fixed, 9);
  return {buffer.data(), end};
}

}  // namespace

std::string to_csv(const BenchRun& run) {
  std::string all(csv_head);
  for (const Row& row : run.rows) {
    CsvCells cells = what(row);
    append(cells, {"lockstep", row.algorithm});
    append(cells, times(row.time));
    append(cells, CsvCells(ratio_columns));
    append(cells, own(row));
    all += csv_line(cells);
    for (const Baseline& each : row.baselines) all += baseline_csv(row, each, {});
    if (row.in_stream) all += stream_csv(row, *row.in_stream);
  }
  return all;
}

std::string to_junit(const BenchRun& run, std::span<const GateFailure> failures) {
  const std::vector<JunitCase> cases = cases_of(run, failures);
  std::size_t failed = 0;
  std::string lines;
  for (const JunitCase& each : cases) {
    const std::string head = text("    <testcase classname=\"lockstep.bench.", xml(each.group), "\" name=\"",
                                  xml(each.name), "\" time=\"", seconds(each.seconds), '"');
    if (each.problems.empty()) {
      lines += text(head, "/>\n");
      continue;
    }
    ++failed;
    lines += text(head, ">\n      <failure message=\"", xml(join(each.problems, "; ")), "\"/>\n    </testcase>\n");
  }
  const std::string counts = text("tests=\"", cases.size(), "\" failures=\"", failed, "\" errors=\"0\"");
  return text(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites ", counts, ">\n  <testsuite name=\"lockstep bench\" ",
      counts, run.started.empty() ? std::string() : text(" timestamp=\"", xml(run.started), '"'),
      ">\n    <properties>\n      <property name=\"version\" value=\"", xml(run.version),
      "\"/>\n      <property name=\"commit\" value=\"", xml(run.commit), "\"/>\n      <property name=\"seed\" value=\"",
      run.seed, "\"/>\n    </properties>\n", lines, "  </testsuite>\n</testsuites>\n");
}

}  // namespace lockstep::bench
