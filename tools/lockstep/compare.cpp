// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep compare`: reads two runs of a bench, and prints the verdict. The verdict sets the exit code.
#include "bench/compare.hpp"

#include <iostream>

#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/read_run.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {

const Manual& compare_manual() {
  static const Manual manual{
      .name = "compare",
      .one_line = "compare two bench results",
      .synopsis = "lockstep compare EARLIER.json[,...] LATER.json[,...] [--tolerance P] [--force]",
      .description =
          R"manual(Compares two files of `lockstep bench --json` row by row. A ratio is the earlier time divided by the
later: above 1 the later run is faster. Intervals are of 95 %. Verdicts are corrected for the number
of rows, so that forty equal rows give no false alarm. There is no verdict if the data cannot support
one: a single launch, more ranks than cores, other machines, or noise. Files separated by commas are
launches of the same bench; three launches each make a verdict possible.)manual",
      .options = {{"tolerance", 0, "P", "Largest change that counts as no change, in per cent (default: 5)."},
                  {"force", 0, "", "Give a verdict from one launch each, although launches differ."}},
      .examples =
          "  lockstep compare a1.json,a2.json,a3.json b1.json,b2.json,b3.json\n"
          "      compares three launches before an upgrade with three after it\n",
      .exit_codes = "  0  the same, or faster\n  1  wrong use, or an unreadable file\n  3  slower\n  7  inconclusive\n",
      .positional = true,
  };
  return manual;
}

Exit run_compare(const ParsedOptions& parsed) {
  warn_of_unknown_variables();
  if (parsed.words().size() != 2)
    throw Error(Code::usage, text(parsed.words().size(), " files are named"),
                "name two: lockstep compare EARLIER.json LATER.json");
  const bench::CompareOptions options{.tolerance = parsed.percent("tolerance", 0, 1000, 5),
                                      .force = parsed.has("force")};
  const bench::Comparison found = bench::compare(read_run(parsed.words()[0]), read_run(parsed.words()[1]), options);
  if (speaks()) std::cout << bench::to_text(found);
  if (found.verdict == bench::Verdict::slower) return Exit::gate;
  if (found.verdict == bench::Verdict::inconclusive || found.verdict == bench::Verdict::cannot_tell)
    return Exit::inconclusive;
  return Exit::success;
}

}  // namespace lockstep::command
