// SPDX-License-Identifier: Apache-2.0
// `lockstep why`: what the members of a job that failed did last, in a sentence for each communicator.
#include <algorithm>
#include <iostream>

#include "collectives/plan_table.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/files_of.hpp"
#include "tools/lockstep/verdict.hpp"
#include "topology/base/text.hpp"
#include "topology/base/text_file.hpp"

namespace lockstep::command {
namespace {

bool has_failed(const status::ProcessSnapshot& process) {
  return std::ranges::any_of(process.communicators, [](const auto& each) { return !each.failure.empty(); });
}

// Of a process there may be its own account and that of another one: one that was stopped while others failed may have
// gone on and failed itself, and what they have seen of it says more; otherwise its own does.
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
      std::cout << text("  ", call_words(seen, call.number),
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
      .one_line = "why a job failed, from what its members left",
      .synopsis = "lockstep why FOLDER|FILE ... [--all]",
      .description =
          R"manual(Reads what LOCKSTEP_DUMP=FOLDER has made members leave when a communicator failed: for each
communicator in which something was wrong a sentence that says who waited in which call, who had not
come to it, what that one did last, and whether its process ran, slept, or was stopped. Members on
several hosts leave their files on each, unless the folder is one that hosts share: copy them
together.)manual",
      .options = {{"all", 'a', "", "Also the last calls of every member."}},
      .examples =
          "  LOCKSTEP_DUMP=/tmp/dump LOCKSTEP_TIMEOUT=60s mpirun -n 8 ./train; lockstep why /tmp/dump\n"
          "      who was missing, and where\n",
      .exit_codes =
          "  0  it was read; a file that cannot be read was named and passed over\n"
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
  if (!speaks()) return Exit::well;
  tell_apart(processes);
  const auto all = verdicts(processes);
  for (const std::string& each : all) std::cout << each << "\n";
  std::cout << (all.empty() ? "nothing had failed, and nobody waited\n"
                            : "So it was when they failed; processes may have ended since.\n");
  if (parsed.has("all")) std::ranges::for_each(processes, say_members);
  return Exit::well;
}

}  // namespace lockstep::command
