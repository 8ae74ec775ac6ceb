// SPDX-License-Identifier: Apache-2.0
// Checks that the job is one job of one program, with one MPI library, on its real machine.
#include <algorithm>
#include <limits>

#include "tools/lockstep/doctor_checks.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/settings.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command::check {

CheckOutcome launcher(const JobView& view) {
  const Facts& mine = view.of(0);
  if (view.size() > 1) return {text(view.size(), " processes in one job"), {}};
  if (mine.launcher_size <= 1 || mine.cluster_named) return {"one process, as the launcher started", {}};
  CheckOutcome outcome;
  outcome.add({Grade::broken, view.everybody(),
               text(mine.launcher_variable, "=", mine.launcher_size, " says that ", mine.launcher_size,
                    " processes were meant, but MPI (", mine.mpi, ") sees one: each process is a world of its own"),
               "every process would do the whole job by itself, without an error",
               text(mine.launcher_command, "; LOCKSTEP_ALLOW_SINGLETON=1 if one process is meant")});
  return outcome;
}

namespace {

void two_libraries(const JobView& view, CheckOutcome& outcome) {
  for (int rank = 0; rank < view.size(); ++rank) {
    const Facts& facts = view.of(rank);
    if (facts.mpi_libraries.size() < 2) continue;
    outcome.add({Grade::broken,
                 {rank},
                 text("two MPI libraries in one process: ", join(facts.mpi_libraries, " and ")),
                 "calls go to one library, handles come from the other: crashes or wrong results",
                 "build everything in the process with one MPI (ldd PROGRAM | grep libmpi finds the other; "
                 "check LD_LIBRARY_PATH and LD_PRELOAD)"});
  }
}

// Looks at a world of one only. If the world has its members, the launcher suits.
void foreign_launcher(const JobView& view, CheckOutcome& outcome) {
  const Facts& mine = view.of(0);
  if (view.size() > 1 || mine.launcher_size <= 1 || mine.cluster_named) return;
  const bool foreign = is_open_mpi(mine) ? mine.pmi_launcher && !mine.open_mpi_launcher : mine.open_mpi_launcher;
  if (!foreign) return;
  outcome.add({Grade::broken, view.everybody(),
               text("started by the launcher of ", is_open_mpi(mine) ? "MPICH or a derivative" : "Open MPI",
                    ", but the program uses ", mine.mpi),
               "a launcher can only connect processes of its own MPI library",
               is_open_mpi(mine) ? "use Open MPI's mpirun (on Debian: mpirun.openmpi; under Slurm: srun --mpi=pmix)"
                                 : "use MPICH's mpiexec (on Debian: mpiexec.mpich; under Slurm: srun --mpi=pmi2)"});
}

}  // namespace

CheckOutcome mpi_library(const JobView& view) {
  CheckOutcome outcome{view.of(0).mpi, {}};
  two_libraries(view, outcome);
  foreign_launcher(view, outcome);
  const auto versions = group_ranks(view, [](const Facts& facts) { return facts.mpi; });
  if (versions.size() > 1) {
    outcome.add({Grade::broken, odd_ones(versions), text("the MPI library is ", by_ranks(versions)),
                 "releases differ in their messages",
                 "install the same MPI library on all nodes; check LD_LIBRARY_PATH (mpirun -x)"});
  }
  return outcome;
}

CheckOutcome build(const JobView& view) {
  CheckOutcome outcome{text("Lockstep ", view.of(0).version, " (", view.of(0).commit, ")"), {}};
  const auto builds =
      group_ranks(view, [](const Facts& facts) { return text(facts.version, " (", facts.commit, ")"); });
  if (builds.size() > 1) {
    outcome.add({Grade::broken, odd_ones(builds), text("Lockstep is ", by_ranks(builds)),
                 "other builds may send other bytes, add in another order, or choose another algorithm",
                 "install the same build on all nodes: `mpirun -n N lockstep --version` shows the build on each"});
  }
  const auto cuda = group_ranks(view, [](const Facts& facts) { return text("CUDA ", facts.cuda); });
  if (builds.size() == 1 && cuda.size() > 1) {
    outcome.add({Grade::broken, odd_ones(cuda), text("the build has ", by_ranks(cuda)),
                 "ranks would use different paths for the same buffers", "install the same build on all nodes"});
  }
  return outcome;
}

namespace {

std::string value_of(const Facts& facts, std::size_t row) {
  return row < facts.settings.size() ? facts.settings[row] : std::string();
}

void compare_setting(const JobView& view, std::size_t row, CheckOutcome& outcome) {
  const auto values = group_ranks(view, [&](const Facts& facts) { return value_of(facts, row); });
  if (values.size() < 2) return;
  const SettingRow& setting = setting_rows()[row];
  outcome.add({setting.agree ? Grade::broken : Grade::note, odd_ones(values),
               text(setting.name, " is ", by_ranks(values)),
               setting.agree ? "ranks would fail at different times: a session refuses to start"
                             : "allowed, but rarely intended",
               text("give all ranks the same: mpirun -x ", setting.name, "=VALUE")});
}

}  // namespace

CheckOutcome settings(const JobView& view) {
  CheckOutcome outcome{"equal on all ranks; `lockstep doctor --env` lists them", {}};
  for (std::size_t row = 0; row < setting_rows().size(); ++row) compare_setting(view, row, outcome);
  for (int rank = 0; rank < view.size(); ++rank) {
    for (const std::string& warning : view.of(rank).setting_warnings) {
      outcome.add({Grade::note,
                   {rank},
                   warning,
                   "the intended setting keeps its value",
                   "correct the name, or unset it; `lockstep doctor --env` lists all that there are"});
    }
  }
  return outcome;
}

CheckOutcome hwloc(const JobView& view) {
  CheckOutcome outcome{"the real machine", {}};
  for (int rank = 0; rank < view.size(); ++rank) {
    const std::string& picture = view.of(rank).hwloc_override;
    if (picture.empty()) continue;
    outcome.add({Grade::slow,
                 {rank},
                 text(printable(picture, 200), " replaces the real machine by a description"),
                 "placement and algorithms are chosen for another machine",
                 text("unset ", picture.substr(0, picture.find('=')))});
  }
  return outcome;
}

namespace {

// Compares clocks of different kernels only. One kernel has one clock, and its readers were merely late.
void compare_wall_clocks(const JobView& view, CheckOutcome& outcome) {
  constexpr std::int64_t most_apart_ns = 2'000'000'000;  // members meet within milliseconds; this is no jitter
  std::map<std::string, std::int64_t> earliest;
  for (const Facts& facts : view.facts) {
    const auto [known, is_new] = earliest.emplace(facts.kernel, facts.wall_clock_ns);
    if (!is_new) known->second = std::min(known->second, facts.wall_clock_ns);
  }
  const auto [low, high] = std::ranges::minmax_element(earliest, {}, [](const auto& each) { return each.second; });
  if (high->second - low->second <= most_apart_ns) return;
  IndexSet ahead;
  for (int rank = 0; rank < view.size(); ++rank) {
    if (view.of(rank).kernel == high->first) ahead.insert(rank);
  }
  outcome.add(
      {Grade::note, ahead,
       text("the clock is ", format_duration(Duration(high->second - low->second)), " ahead of the last node's"),
       "times in logs and files of different nodes cannot be compared; waits and limits are not affected",
       "timedatectl set-ntp true on the nodes; chronyc tracking shows the offset"});
}

}  // namespace

CheckOutcome clocks(const JobView& view) {
  constexpr double most_ns =
      300;  // from user space it takes about 25 ns, 50 under virtualisation; a call into the kernel takes longer
  double slowest = 0;
  CheckOutcome outcome;
  for (int rank = 0; rank < view.size(); ++rank) {
    const Facts& facts = view.of(rank);
    slowest = std::max(slowest, facts.clock_ns);
    if (facts.clock_ns <= most_ns) continue;
    outcome.add({Grade::slow,
                 {rank},
                 text("reading the clock (", printable(facts.clock_source), ") takes more than ", most_ns, " ns"),
                 "waiting and measuring read it all the time; short messages take longer than they need",
                 "echo tsc > /sys/devices/system/clocksource/clocksource0/current_clocksource (as root; the list "
                 "beside it, available_clocksource, lists them)"});
  }
  compare_wall_clocks(view, outcome);
  outcome.summary = text("read in ", slowest, " ns at most (", view.of(0).clock_source, ")");
  return outcome;
}

}  // namespace lockstep::command::check
