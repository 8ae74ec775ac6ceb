// SPDX-License-Identifier: Apache-2.0
// Runs `lockstep doctor`. It gathers facts from all members, lets rank 0 judge them, and gives all the same exit code.
// It must work even if other programs would not start, so its session is a tolerant one.
#include <algorithm>
#include <cstdlib>
#include <iostream>
#include <vector>

#include "tools/lockstep/begin_session.hpp"
#include "tools/lockstep/command.hpp"
#include "tools/lockstep/doctor_links.hpp"
#include "tools/lockstep/doctor_report.hpp"
#include "tools/lockstep/write_file.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/launcher.hpp"
#include "topology/machine/session.hpp"

namespace lockstep::command {
namespace {

std::string describe_checks() {
  std::string all =
      "Finds the causes of slow, wrong or hanging jobs before the job runs. It asks the system, and tries things\n"
      "out if the answer cannot be trusted. Start it exactly as you start your program, with the same launcher,\n"
      "options and variables. Each finding has a place, a reason and a remedy. Its grade is note, slow or broken.\n"
      "A run without findings prints one line for each check:\n\n";
  std::size_t widest = 0;
  for (const DoctorCheck& each : checks()) widest = std::max(widest, each.name.size());
  for (const DoctorCheck& each : checks())
    all += text("  ", each.name, std::string(widest + 2 - each.name.size(), ' '), each.looks_at, "\n");
  all.pop_back();
  return all;
}

Manual make_manual() {
  static const std::string description = describe_checks();
  return {.name = "doctor",
          .one_line = "find the causes of slow, wrong or hanging jobs before they run",
          .synopsis = "mpirun -n N lockstep doctor [--strict] [--json [FILE]]\n  lockstep doctor --env [--json [FILE]]",
          .description = description,
          .options = {{"env", 0, "",
                       "Print the LOCKSTEP_ variables instead: value, origin, default, allowed values and meaning. "
                       "Needs no MPI."},
                      {"json", 0, "[FILE]",
                       "Write one JSON object to FILE too; without FILE, or with -, print it instead of the text."},
                      {"strict", 0, "", "Exit with 6 for slow findings too, not only for broken ones."}},
          .examples =
              "  mpirun -n 4 lockstep doctor\n      checks a new machine before its first run\n"
              "  mpirun -n 64 lockstep doctor --strict --json > health.json\n      checks the nodes in the prologue of "
              "a batch system\n"
              "  lockstep doctor --env\n      lists all variables, and the misspelt ones\n",
          .exit_codes = "  0  nothing is broken\n  1  wrong use\n  6  something is broken (with --strict: or slow)\n"};
}

// Returns a sink that shows only stalls. Warnings about settings and this machine are findings here, and would appear
// twice. A warning about missing members must appear at once.
Log::Sink only_stalls() {
  return [](LogLevel level, std::string_view line) {
    const auto tells = [&](Code code) { return line.find(id(code)) != std::string_view::npos; };
    if (level == LogLevel::warn && !tells(Code::stall) && !tells(Code::mpi_hang)) return;
    std::cerr << text("lockstep: ", line, "\n") << std::flush;
  };
}

// Returns true if this process prints the report. Under an unsuitable launcher each of many processes is rank 0 of a
// world of its own.
bool prints(const Session& session, const Facts& mine) {
  return session.rank() == 0 && (mine.launcher_size <= 1 || session.size() > 1 || speaks());
}

Exit diagnose(const ParsedOptions& parsed) {
  const Settings given = Settings::from_environment();
  Settings tolerant = given;
  tolerant.set(Setting::allow_singleton, "1");
  // The user does not want to wait five minutes for a job that hangs.
  if (given.source(Setting::timeout) == SettingSource::built_in) tolerant.set(Setting::timeout, "60s");
  Session session = begin_session({.settings = tolerant, .log = only_stalls(), .purpose = "doctor", .tolerant = true});
  auto facts = try_and_gather(session.exchange(), session.topology(), ask(session, given));
  if (const auto subnet = common_subnet_of({facts, session.topology()})) {
    const std::vector<double> rates = try_links(session.exchange(), session.topology(), *subnet);
    for (std::size_t rank = 0; rank < facts.size(); ++rank) facts[rank].link_mbit_per_s = rates[rank];
  }
  Exit exit = Exit::success;
  if (session.rank() == 0) {
    const Diagnosis diagnosis = examine(facts, session.topology());
    const JobView view{facts, session.topology()};
    exit = exit_for(diagnosis.worst(), parsed.has("strict"));
    if (prints(session, facts.front())) {
      if (const auto file = parsed.value("json")) write_file(*file, report_json(view, diagnosis, parsed.has("strict")));
      if (!parsed.prints("json")) std::cout << report_text(view, diagnosis) << std::flush;
    }
  }
  const Bytes verdict = session.exchange().broadcast("doctor: verdict", Writer().put(exit).take(), 0);
  return Reader(verdict).get_enum(Exit::inconclusive);
}

}  // namespace

const Manual& doctor_manual() {
  static const Manual manual = make_manual();
  return manual;
}

Exit run_doctor(const ParsedOptions& parsed) {
  if (const auto file = parsed.value("json")) refuse_unwritable("--json", *file);
  if (!parsed.has("env")) return diagnose(parsed);
  if (parsed.has("strict")) throw Error(Code::usage, "--strict with --env", "leave one of them out");
  const Settings settings = Settings::from_environment();
  if (!speaks()) return Exit::success;
  if (const auto file = parsed.value("json")) write_file(*file, settings_json(settings));
  if (!parsed.prints("json")) std::cout << settings_text(settings, terminal_width());
  return Exit::success;
}

}  // namespace lockstep::command
