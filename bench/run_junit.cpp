// SPDX-License-Identifier: Apache-2.0
// Writes a run as test cases. Names of cases stay the same between runs.
#include "bench/run_junit.hpp"

#include <cmath>

#include "topology/base/text.hpp"

namespace lockstep::bench {
namespace {

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

}  // namespace

std::string to_junit(const BenchRun& run, std::span<const GateFailure> failures) {
  const std::vector<JunitCase> cases = cases_of(run, failures);
  std::size_t failed = 0;
  std::string lines;
  for (const JunitCase& each : cases) {
    const std::string head = text("    <testcase classname=\"lockstep.bench.", xml(each.group), "\" name=\"",
                                  xml(each.name), "\" time=\"", with_decimals(each.seconds, 9), '"');
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
