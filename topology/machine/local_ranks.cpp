// SPDX-License-Identifier: Apache-2.0
// Finds ranks of this host by their environment in /proc, and their calls by the names of memory files.
#include "topology/machine/local_ranks.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <map>
#include <optional>

#include "topology/base/proc.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/launcher.hpp"

namespace lockstep {
namespace {

constexpr std::string_view mark = "lockstep in ";
constexpr std::size_t most_variables = 1U << 20U;  // bytes read of one environment

using ProcessVariables = std::map<std::string, std::string, std::less<>>;

ProcessVariables variables_of(int process) {
  ProcessVariables all;
  for (const std::string& each : split(read_proc(text("/proc/", process, "/environ"), most_variables), '\0')) {
    if (const std::size_t sign = each.find('='); sign != std::string::npos)
      all.emplace(each.substr(0, sign), each.substr(sign + 1));
  }
  return all;
}

Environment looked_up(const ProcessVariables& variables) {
  return [&variables](const char* name) {
    const auto at = variables.find(std::string_view(name));
    return at == variables.end() ? nullptr : at->second.c_str();
  };
}

// Returns an empty text if the program may not be known.
std::string program_of(int process) {
  std::array<char, 1024> path{};
  const ssize_t length = ::readlink(text("/proc/", process, "/exe").c_str(), path.data(), path.size());
  return {path.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

// Holds a process's state, and the process that started it.
struct ProcessStat {
  char state = '?';
  int parent = 0;
};
std::optional<ProcessStat> stat_of(int process) {
  const std::vector<std::string> fields = fields_of_process(process);
  if (fields.size() < 2 || fields[0].size() != 1) return std::nullopt;
  return ProcessStat{fields[0].front(), static_cast<int>(parse_integer(fields[1]).value_or(0))};
}

// Returns the nearest ancestor without a rank. A script that starts a rank has its variables, and so does not count.
int launcher_of(int process) {
  constexpr int deepest = 16;  // ancestors looked at; a guess
  for (int i = 0; i < deepest; ++i) {
    const auto stat = stat_of(process);
    if (!stat) return 0;
    process = stat->parent;
    if (!is_of_this_user(process)) return process;
    const ProcessVariables variables = variables_of(process);
    if (!launcher_rank(looked_up(variables))) return process;
  }
  return 0;
}

std::string name_of(const Environment& environment, int process) {
  if (const char* name = environment("PMIX_NAMESPACE")) return text("PMIx ", name);
  const char* job = environment("SLURM_JOB_ID");
  const char* step = environment("SLURM_STEP_ID");
  if (job != nullptr && step != nullptr) return text("Slurm ", job, '.', step);
  const int launcher = launcher_rank(environment) ? launcher_of(process) : 0;
  return launcher > 0 ? text("of process ", launcher) : "";
}

std::string inside_of(int process) {
  const MemoryFile file = find_memory_file(process, mark);
  if (file.descriptor < 0) return {};
  ::close(file.descriptor);
  return printable(std::string_view(file.name).substr(mark.size()), 100);
}

}  // namespace

LauncherJob launcher_job_of(const Environment& environment) {
  LauncherJob launch{.rank = launcher_rank(environment).value_or(0)};
  if (!launcher_rank(environment)) return launch;
  launch.name = name_of(environment, ::getpid());
  constexpr int absurd = 1 << 16;  // ranks on a host; a larger number is no count
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    const char* value = environment(name);
    const auto number = value == nullptr ? std::nullopt : parse_integer(trim(value));
    if (number && *number > 0 && *number < absurd) launch.here = static_cast<int>(*number);
  }
  return launch;
}

std::vector<LocalRank> local_ranks_of(const LauncherJob& launch) {
  if (launch.name.empty()) return {};
  // Chooses one process for each rank. A script that starts a rank has its variables, and so have the rank's children.
  // A process in a call counts most, then one of this program, and of equals the first.
  struct CandidateProcess {
    LocalRank local_rank;
    bool is_of_this_program = false;
    int worth() const { return (local_rank.inside.empty() ? 0 : 2) + (is_of_this_program ? 1 : 0); }
  };
  const std::string program = program_of(::getpid());
  std::map<int, CandidateProcess> found;
  visit_processes_of_this_user([&](int process) {
    if (process == ::getpid()) return false;
    const auto stat = stat_of(process);
    if (!stat) return false;
    const ProcessVariables variables = variables_of(process);
    const Environment theirs = looked_up(variables);
    const auto rank = launcher_rank(theirs);
    if (!rank || *rank == launch.rank || name_of(theirs, process) != launch.name) return false;
    CandidateProcess one{{*rank, process, stat->state == 'T' || stat->state == 't', inside_of(process)},
                         program_of(process) == program};
    const auto [entry, is_new] = found.try_emplace(*rank, one);
    if (!is_new && one.worth() > entry->second.worth()) entry->second = std::move(one);
    return false;
  });
  std::vector<LocalRank> all;
  all.reserve(found.size());
  for (auto& [rank, one] : found) all.push_back(std::move(one.local_rank));
  return all;
}

CallMarker::CallMarker(std::string_view call) : file_(::memfd_create(text(mark, call).c_str(), MFD_CLOEXEC)) {}

CallMarker::~CallMarker() {
  if (file_ >= 0) ::close(file_);
}

std::string missing_ranks_text(std::string_view call, const LauncherJob& launch,
                               const std::vector<LocalRank>& local_ranks, bool all_come) {
  constexpr std::size_t most = 8;  // ranks named in one sentence
  if (local_ranks.empty() && launch.here < 2) return {};
  std::vector<std::string> all;
  for (const LocalRank& local_rank : local_ranks) {
    const std::string who = text(local_rank.rank, " (process ", local_rank.process, ')');
    if (local_rank.stopped) {
      all.push_back(text(who, " is stopped"));
    } else if (all_come && local_rank.inside != call) {
      all.push_back(local_rank.inside.empty() ? text(who, " has not reached it")
                                              : text(who, " is in ", local_rank.inside));
    }
  }
  if (all.size() > most) {
    const std::size_t more = all.size() - most;
    all.resize(most);
    all.push_back(text(more, " more neither"));
  }
  const int there = static_cast<int>(local_ranks.size()) + 1;
  if (all_come && there < launch.here)
    all.push_back(
        text(launch.here - there, " of ", launch.here, " cannot be seen (ended, or not begun, or in a container)"));
  if (all.empty() && !all_come) return {};
  if (all.empty()) return text("all ", there, " ranks on this host are in it");
  return text("of the ranks on this host, ", join(all, ", "));
}

}  // namespace lockstep
