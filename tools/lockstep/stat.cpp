// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep stat`: shows the calls of processes on this host from outside.
#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <iostream>
#include <thread>

#include "tools/lockstep/ask_unseen.hpp"
#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/prometheus.hpp"
#include "tools/lockstep/verdict.hpp"
#include "tools/lockstep/verdict_groups.hpp"
#include "tools/lockstep/write_file.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

// Parses a process id.
int process_in(const std::string& word) {
  int process = 0;
  const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), process);
  if (error != std::errc{} || end != word.data() + word.size() || process <= 0)
    throw Error(Code::usage, text("\"", printable(word), "\" is not a process id"),
                "give process ids: pgrep -a NAME lists them");
  return process;
}

// Reads a process's status file. Throws Error usage if there is no process or no communicator.
status::ProcessSnapshot look(int process) {
  if (::kill(process, 0) != 0 && errno == ESRCH)
    throw Error(Code::usage, text("there is no process ", process),
                "give the id of a process of this host (pgrep -a NAME)");
  if (auto seen = status::read_process(process)) return std::move(*seen);
  throw Error(Code::usage, text("process ", process, " has no communicator of Lockstep"),
              "name a process that has made one; `lockstep stat` without an id lists those of this host");
}

// Returns the rate of a communicator whose calls advance between the two samples, or else its wait.
std::string progress_text(const status::CommunicatorSnapshot& now, const status::CommunicatorSnapshot* before,
                          double seconds) {
  if (now.failure.empty() && before != nullptr && now.started > before->started) {
    const double rate = static_cast<double>(now.started - before->started) / seconds;
    return text("running, ", std::lround(rate), rate < 1.5 ? " call" : " calls", " per second; ",
                call_text(now, now.started));
  }
  return status::progress_text(now);
}

// Prints a process and a line for each of its communicators.
void print_process(const status::ProcessSnapshot& now, const status::ProcessSnapshot& before, double seconds) {
  std::cout << text("process ", now.process, " (", now.program, ") on ", now.host, ", ", now.state, "\n");
  for (const status::CommunicatorSnapshot& seen : now.communicators) {
    const auto earlier = std::ranges::find(before.communicators, seen.order, &status::CommunicatorSnapshot::order);
    std::cout << text("  \"", seen.name, "\" rank ", seen.rank, " of ", seen.size, ": ",
                      progress_text(seen, earlier == before.communicators.end() ? nullptr : &*earlier, seconds), "\n");
  }
  if (now.communicators.empty()) std::cout << "  no communicator left\n";
}

// Prints members whose process was not read: it is on another host, or was not named.
void say_unseen(const std::vector<status::ProcessSnapshot>& now,
                const std::map<std::uint64_t, std::string>& complaints) {
  constexpr std::size_t most_lines = 256;  // of a communicator; equal members share a line
  for (const ObservedGroup& group : groups_of(now)) {
    const auto unseen = unseen_members(group);
    if (unseen.empty()) continue;
    std::cout << text('"', group.name, "\" has ", group.size, " members; these were not read:\n");
    if (const auto found = complaints.find(group.members.begin()->second.seen->id); found != complaints.end())
      std::cout << text("  ", found->second, "\n");
    const std::vector<std::string> lines = unseen_text(unseen, unseen.size());
    for (std::size_t i = 0; i < std::min(lines.size(), most_lines); ++i) std::cout << text("  ", lines[i], "\n");
    if (lines.size() > most_lines) std::cout << text("  and ", lines.size() - most_lines, " more; --json has all\n");
  }
}

// Reads the processes, and adds the errors of those that cannot be read to `reasons`.
std::vector<status::ProcessSnapshot> look_at_all(const std::vector<int>& processes, std::vector<Error>& reasons) {
  std::vector<status::ProcessSnapshot> all;
  for (const int process : processes) {
    try {
      all.push_back(look(process));
    } catch (const Error& error) {
      reasons.push_back(error);
    }
  }
  return all;
}

// Prints why named processes are missing, and returns the exit code of the first reason. Throws that Error if no
// process was read.
Exit say_missing(const std::vector<Error>& reasons, bool is_any_read) {
  if (reasons.empty()) return Exit::success;
  if (!is_any_read) throw reasons.front();
  for (const Error& each : reasons) {
    if (speaks()) std::cerr << text("lockstep: ", each.what(), "\n");
  }
  return reasons.front().exit();
}

}  // namespace

const Manual& stat_manual() {
  static const Manual manual{
      .name = "stat",
      .one_line = "a job hangs: show the call of each process, and the missing ranks",
      .synopsis = "lockstep stat [PROCESS ...] [--seconds S] [--json [FILE] | --prometheus [--output FILE]]",
      .description =
          R"manual(Shows the calls of running or hanging processes on this host. For each process and communicator it
prints the current call, its place in the program, the reason and duration of a wait, or the calls
per second. For each communicator in which members wait, it prints the missing members and whether
their processes run, sleep or are stopped. Stopped processes can be read too.

Without PROCESS it shows all of your processes that have communicators. PROCESS is a process id:
  pgrep -a my_program    lists ids by the name of the program (at most 15 characters of it count)
  pgrep -f my_program    lists ids by the whole command line, for scripts such as train.py; it also
                         lists mpirun, which has no communicator and which stat leaves out
  ps -C my_program       lists them with their times
Root can name the processes of other users: `pgrep -u USER my_program`.

Members on other hosts are listed by host and process. A member of this host that is in a call asks
them for their state; `stat` waits at most 1 s for the answers. A member does not answer if it is in
no call of the communicator, is stopped, or has ended. If no member of this host is in a call, no
member can ask: run `lockstep stat` on the other hosts.)manual",
      .options = {{"seconds", 0, "S",
                   "Time between two samples, in seconds (default: 0.2). It tells running processes from stuck ones."},
                  {"json", 0, "[FILE]",
                   "Write JSON to FILE, a process in each line of the list; without FILE, or with -, print it."},
                  {"prometheus", 0, "", "Print metrics in the text format of Prometheus."},
                  {"output", 'o', "FILE", "With --prometheus: write to this file, which is replaced as a whole."}},
      .examples =
          "  lockstep stat\n      shows all of your jobs on this host\n"
          "  lockstep stat $(pgrep my_program)\n      shows the processes of one program\n"
          "  lockstep stat $(pgrep -f '^python3? .*train.py')\n      shows the processes of one script, without "
          "mpirun\n"
          "  lockstep stat --prometheus -o /var/lib/node_exporter/lockstep.prom\n      writes the file of "
          "node_exporter's textfile collector\n",
      .exit_codes =
          "  0  the processes were read\n  1  wrong use, or a named process has ended or has no communicator\n"
          "  6  a process may not be read\n",
      .positional = true,
  };
  return manual;
}

Exit run_stat(const ParsedOptions& parsed) {
  warn_of_unknown_variables();
  const double seconds = parsed.decimal("seconds", 0, 3600, 0.2);
  std::vector<int> processes;
  for (const std::string& word : parsed.words()) processes.push_back(process_in(word));
  const bool are_named = !processes.empty();
  if (parsed.has("output") && !parsed.has("prometheus"))
    throw Error(Code::usage, "--output belongs to --prometheus",
                "give both, or send the output there: lockstep stat > FILE");
  if (parsed.has("prometheus") && parsed.has("json"))
    throw Error(Code::usage, "--json and --prometheus are two output formats", "give one of them");
  for (const std::string_view name : {"output", "json"})
    if (const auto file = parsed.value(name)) refuse_unwritable(text("--", name), *file);
  if (!are_named) processes = status::processes();
  std::vector<Error> reasons;
  const auto seen = look_at_all(processes, reasons);
  const Exit exit = are_named ? say_missing(reasons, !seen.empty()) : Exit::success;
  if (parsed.has("prometheus")) {
    const std::string all = prometheus_text(seen);
    if (!speaks()) return exit;
    if (const auto file = parsed.value("output"))
      write_file(*file, all);
    else
      std::cout << all;
    return exit;
  }
  const auto complaints = ask_unseen(seen);
  if (parsed.has("json")) {
    std::vector<std::string> all;
    for (const status::ProcessSnapshot& each : look_at_all(processes, reasons)) all.push_back(status::to_json(each));
    if (speaks()) write_file(*parsed.value("json"), text("[", join(all, ","), "]\n"));
    return exit;
  }
  const auto before = look_at_all(processes, reasons);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  if (!speaks()) return exit;
  std::vector<status::ProcessSnapshot> now;
  std::vector<const status::ProcessSnapshot*> earlier;
  for (const status::ProcessSnapshot& each : before) {
    try {
      now.push_back(look(each.process));
      earlier.push_back(&each);
    } catch (const Error&) {
      std::cout << text("process ", each.process, " (", each.program, ") has just ended\n");
    }
  }
  tell_apart(now);
  for (std::size_t i = 0; i < now.size(); ++i) print_process(now[i], *earlier[i], std::max(seconds, 1e-3));
  say_unseen(now, complaints);
  for (const std::string& each : verdicts(now)) std::cout << each << "\n";
  if (before.empty()) std::cout << "no process of yours on this host has a communicator of Lockstep\n";
  return exit;
}

}  // namespace lockstep::command
