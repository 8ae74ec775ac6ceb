// SPDX-License-Identifier: Apache-2.0
// `lockstep compare`: two runs of a bench, the verdict over them, and its exit code.
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
      .one_line = "whether one bench was faster than another",
      .synopsis = "lockstep compare EARLIER.json[,...] LATER.json[,...] [--tolerance P] [--force]",
      .description =
          R"manual(Compares two files of `lockstep bench --json` row by row. A ratio is the earlier time divided by the
later: above 1 the later is faster. Intervals are of 95 %; verdicts are corrected for the number of
rows, so that forty equal rows give no false alarm. Where the data cannot bear a verdict (one launch
only, more ranks than cores, other machines, noise) it says so and gives none. Several files
separated by commas are several launches of the same bench: three each make a verdict possible.)manual",
      .options = {{"tolerance", 0, "P", "A change up to this is none, in per cent: 5 unless given."},
                  {"force", 0, "", "A verdict from one launch each, although launches differ."}},
      .examples =
          "  lockstep compare a1.json,a2.json,a3.json b1.json,b2.json,b3.json\n"
          "      is the interconnect still what it was?\n",
      .exit_codes =
          "  0  the same, or faster\n  1  wrong use, or a file that cannot be read\n  3  slower\n  7  inconclusive\n",
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
  return Exit::well;
}

}  // namespace lockstep::command
