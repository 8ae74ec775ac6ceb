// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep why`: prints a sentence for each communicator of a failed job.
#include <algorithm>
#include <iostream>

#include "collectives/plan_table.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/files_of.hpp"
#include "tools/lockstep/verdict.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"
#include "topology/base/text_file.hpp"

namespace lockstep::command {
namespace {

bool has_failed(const status::ProcessSnapshot& process) {
  return std::ranges::any_of(process.communicators, [](const auto& each) { return !each.failure.empty(); });
}

// Adds a process. It may have its own file and that of another process. A process that was stopped while others failed
// may have continued and failed itself. Then the other file tells more; otherwise its own does.
void add_process(std::vector<status::ProcessSnapshot>& all, status::ProcessSnapshot seen) {
  const auto same = std::ranges::find_if(
      all, [&](const auto& each) { return each.process == seen.process && each.host == seen.host; });
  if (same == all.end())
    all.push_back(std::move(seen));
  else if (is_held(seen) || (!is_held(*same) && has_failed(seen)))
    *same = std::move(seen);
}

void say_members(const status::ProcessSnapshot& process) {
  for (const status::CommunicatorSnapshot& seen : process.communicators) {
    std::cout << text("\n\"", seen.name, "\" rank ", seen.rank, " of ", seen.size, ", process ", process.process, " (",
                      process.program, ") on ", process.host, ", ", process.state, ":\n");
    for (const status::CallSnapshot& call : seen.calls)
      std::cout << text("  ", call_text(seen, call.number),
                        call.number == seen.current() && seen.is_in_call() ? ": not finished" : "", "\n");
    if (seen.messages > 0) std::cout << text("  ", seen.messages, " messages\n");
    if (!seen.waits.empty())
      std::cout << text("  waits ", format_duration(std::chrono::milliseconds(seen.waited_ms)), ": ", seen.waits, "\n");
    if (!seen.failure.empty()) std::cout << text("  ", seen.failure, "\n");
  }
}

}  // namespace

const Manual& why_manual() {
  static const Manual manual{
      .name = "why",
      .one_line = "a job failed: name the rank at fault, from the files of LOCKSTEP_DUMP",
      .synopsis = "lockstep why FOLDER|FILE ... [--all]",
      .description =
          R"manual(Reads the files of LOCKSTEP_DUMP=FOLDER, which members leave when a communicator fails. For each
communicator with an error it prints a sentence: the members that waited, their call, the member that
was missing, its last call, and whether its process ran, slept or was stopped. Members on several
hosts leave their files on each host, unless the hosts share the folder: copy the files together.)manual",
      .options = {{"all", 'a', "", "Print the last calls of every member too."}},
      .examples =
          "  LOCKSTEP_DUMP=/tmp/dump LOCKSTEP_TIMEOUT=60s mpirun -n 8 ./train; lockstep why /tmp/dump\n"
          "      names the missing member and the call\n",
      .exit_codes =
          "  0  at least one file was read; unreadable files are named and skipped\n"
          "  1  wrong use, or no file can be read\n",
      .positional = true,
  };
  return manual;
}

Exit run_why(const ParsedOptions& parsed) {
  warn_of_unknown_variables();
  constexpr std::size_t most_bytes = std::size_t{16} << 20U;
  std::vector<status::ProcessSnapshot> processes;
  constexpr std::string_view setting = "LOCKSTEP_DUMP";
  read_each(files_of(parsed.words(), ".json", setting), setting, [&](const std::string& file) {
    add_process(processes, parse_status_file(read_text_file(file, most_bytes), file));
  });
  if (!speaks()) return Exit::success;
  tell_apart(processes);
  const auto all = verdicts(processes);
  for (const std::string& each : all) std::cout << each << "\n";
  std::cout << (all.empty() ? "no communicator had failed, and no member was waiting\n"
                            : "This was the state at the failure; processes may have ended since.\n");
  if (parsed.has("all")) std::ranges::for_each(processes, say_members);
  return Exit::success;
}

}  // namespace lockstep::command
