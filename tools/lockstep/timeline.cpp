// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep timeline`: merges the timelines of a job's members into one trace, by one clock.
#include <filesystem>
#include <iostream>
#include <system_error>

#include "collectives/plan_table.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/files_of.hpp"
#include "tools/lockstep/merge_timelines.hpp"
#include "tools/lockstep/write_file.hpp"
#include "topology/base/text.hpp"
#include "topology/base/text_file.hpp"

namespace lockstep::command {

const Manual& timeline_manual() {
  static const Manual manual{
      .name = "timeline",
      .one_line = "find the ranks that others wait for, and draw all calls",
      .synopsis = "lockstep timeline FOLDER|FILE ... [--output FILE]",
      .description =
          R"manual(Reads the files of LOCKSTEP_TIMELINE=FOLDER: begin and end of each collective call of each member.
It prints the members for which the others waited longest, and the call in which they waited most.
--output writes all calls as trace events, which https://ui.perfetto.dev and chrome://tracing show.
Each host has a clock of its own. The calls themselves align the clocks, because no member completes
a call in which all wait for all before the last one begins it. The precision is printed.)manual",
      .options = {{"output", 'o', "FILE", "File of the trace."}},
      .examples =
          "  LOCKSTEP_TIMELINE=/tmp/line mpirun -n 8 ./train; lockstep timeline /tmp/line -o trace.json\n"
          "      names the slow members, and writes a trace for Perfetto\n",
      .exit_codes =
          "  0  at least one file was read; unreadable files are named and skipped\n"
          "  1  wrong use, or no file can be read\n",
      .positional = true,
  };
  return manual;
}

Exit run_timeline(const ParsedOptions& parsed) {
  warn_of_unknown_variables();
  constexpr std::size_t most_file_bytes = std::size_t{64} << 20U;
  std::vector<Timeline> all;
  const auto output = parsed.value("output");
  if (output) refuse_unwritable("--output", *output);
  constexpr std::string_view setting = "LOCKSTEP_TIMELINE";
  read_each(files_of(parsed.words(), ".timeline", setting), setting, [&](const std::string& file) {
    std::error_code ignored;
    if (output && std::filesystem::equivalent(file, *output, ignored))
      throw Error(Code::usage, text("--output ", printable(*output, output->size()), " is one of the files to be read"),
                  "write the trace elsewhere");
    all.push_back(parse_timeline(read_text_file(file, most_file_bytes), file));
  });
  if (!speaks()) return Exit::success;
  const Clocks clocks = clocks_of(all);
  if (!parsed.prints("output")) std::cout << summary_of(all, clocks);
  if (output) write_file(*output, trace_of(all, clocks));
  return Exit::success;
}

}  // namespace lockstep::command
