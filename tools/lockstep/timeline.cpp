// SPDX-License-Identifier: Apache-2.0
// `lockstep timeline`: one picture, by one clock, of what the members of a job did when.
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
      .one_line = "who waited for whom, and a picture of all members' calls",
      .synopsis = "lockstep timeline FOLDER|FILE ... [--output FILE]",
      .description =
          R"manual(Reads what LOCKSTEP_TIMELINE=FOLDER has made members leave: when each of their collective calls
began and ended. Says for whom the others waited, and in which call most; the longest first. With
--output it writes all calls as trace events, which https://ui.perfetto.dev and chrome://tracing
show. Hosts have clocks of their own: they are brought to one by the calls themselves, since nobody
is through a call in which all wait for all before the last one has come to it; how well that is
known is said.)manual",
      .options = {{"output", 'o', "FILE", "The trace."}},
      .examples =
          "  LOCKSTEP_TIMELINE=/tmp/line mpirun -n 8 ./train; lockstep timeline /tmp/line -o trace.json\n"
          "      who is slow, and a picture for Perfetto\n",
      .exit_codes =
          "  0  it was read; a file that cannot be read was named and passed over\n"
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
  if (!speaks()) return Exit::well;
  const Clocks clocks = clocks_of(all);
  if (!parsed.prints("output")) std::cout << summary_of(all, clocks);
  if (output) write_file(*output, trace_of(all, clocks));
  return Exit::well;
}

}  // namespace lockstep::command
