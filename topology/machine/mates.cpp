// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/mates.hpp"

#include <dirent.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>

#include "topology/base/proc.hpp"
#include "topology/base/text.hpp"
#include "topology/machine/launcher.hpp"

namespace lockstep {
namespace {

constexpr std::string_view mark = "lockstep in ";
constexpr std::size_t most_variables = 1U << 20U;  // bytes of them

// The names in a folder that are numbers.
std::vector<int> numbers_in(const std::string& folder) {
  std::vector<int> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> entries(::opendir(folder.c_str()), ::closedir);
  while (const dirent* entry = entries ? ::readdir(entries.get()) : nullptr) {
    if (const auto number = parse_integer(static_cast<const char*>(entry->d_name)))
      all.push_back(static_cast<int>(*number));
  }
  return all;
}

using Variables = std::map<std::string, std::string, std::less<>>;

Variables variables_of(int process) {
  Variables all;
  for (const std::string& each : split(read_proc(text("/proc/", process, "/environ"), most_variables), '\0')) {
    if (const std::size_t sign = each.find('='); sign != std::string::npos)
      all.emplace(each.substr(0, sign), each.substr(sign + 1));
  }
  return all;
}

Environment looked_up(const Variables& variables) {
  return [&variables](const char* name) {
    const auto at = variables.find(std::string_view(name));
    return at == variables.end() ? nullptr : at->second.c_str();
  };
}

// Empty: that may not be known.
std::string program_of(int process) {
  std::array<char, 1024> path{};
  const ssize_t length = ::readlink(text("/proc/", process, "/exe").c_str(), path.data(), path.size());
  return {path.data(), length > 0 ? static_cast<std::size_t>(length) : 0};
}

// Its state, and the process that has started it.
struct Stat {
  char state = '?';
  int parent = 0;
};
std::optional<Stat> stat_of(int process) {
  const std::vector<std::string> fields = fields_of_process(process);
  if (fields.size() < 2 || fields[0].size() != 1) return std::nullopt;
  return Stat{fields[0].front(), static_cast<int>(parse_integer(fields[1]).value_or(0))};
}

// Whoever has no rank itself: not a script that starts this one.
int launcher_of(int process) {
  constexpr int deepest = 16;
  for (int i = 0; i < deepest; ++i) {
    const auto stat = stat_of(process);
    if (!stat) return 0;
    process = stat->parent;
    const Variables variables = variables_of(process);
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
  const std::string folder = text("/proc/", process, "/fd");
  for (const int number : numbers_in(folder)) {
    std::array<char, 256> target{};
    const ssize_t length = ::readlink(text(folder, '/', number).c_str(), target.data(), target.size());
    std::string_view name(target.data(), length > 0 ? static_cast<std::size_t>(length) : 0);
    constexpr std::string_view before = "/memfd:";
    if (!name.starts_with(before) || !name.substr(before.size()).starts_with(mark)) continue;
    name.remove_prefix(before.size() + mark.size());
    constexpr std::string_view behind = " (deleted)";
    if (name.ends_with(behind)) name.remove_suffix(behind.size());
    return printable(name, 100);
  }
  return {};
}

}  // namespace

Launch launch_of(const Environment& environment) {
  Launch launch{.rank = launcher_rank(environment).value_or(0)};
  if (!launcher_rank(environment)) return launch;
  launch.name = name_of(environment, ::getpid());
  constexpr int absurd = 1 << 16;
  for (const char* name : {"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}) {
    const char* value = environment(name);
    const auto number = value == nullptr ? std::nullopt : parse_integer(trim(value));
    if (number && *number > 0 && *number < absurd) launch.here = static_cast<int>(*number);
  }
  return launch;
}

std::vector<Mate> mates_of(const Launch& launch) {
  if (launch.name.empty()) return {};
  // A script that starts a rank has its variables, and so has what the rank has started: the one in a call counts, then
  // one of this program, and of these the first.
  struct Candidate {
    Mate mate;
    bool is_of_this_program = false;
    int worth() const { return (mate.inside.empty() ? 0 : 2) + (is_of_this_program ? 1 : 0); }
  };
  const std::string program = program_of(::getpid());
  std::map<int, Candidate> found;
  std::vector<int> processes = numbers_in("/proc");
  std::ranges::sort(processes);
  for (const int process : processes) {
    if (process == ::getpid()) continue;
    const auto stat = stat_of(process);
    if (!stat) continue;
    const Variables variables = variables_of(process);
    const Environment theirs = looked_up(variables);
    const auto rank = launcher_rank(theirs);
    if (!rank || *rank == launch.rank || name_of(theirs, process) != launch.name) continue;
    Candidate one{{*rank, process, stat->state == 'T' || stat->state == 't', inside_of(process)},
                  program_of(process) == program};
    const auto [entry, is_new] = found.try_emplace(*rank, one);
    if (!is_new && one.worth() > entry->second.worth()) entry->second = std::move(one);
  }
  std::vector<Mate> all;
  all.reserve(found.size());
  for (auto& [rank, one] : found) all.push_back(std::move(one.mate));
  return all;
}

InCall::InCall(std::string_view call) : file_(::memfd_create(text(mark, call).c_str(), MFD_CLOEXEC)) {}

InCall::~InCall() {
  if (file_ >= 0) ::close(file_);
}

std::string who_is_missing(std::string_view call, const Launch& launch, const std::vector<Mate>& mates, bool all_come) {
  constexpr std::size_t most = 8;
  if (mates.empty() && launch.here < 2) return {};
  std::vector<std::string> all;
  for (const Mate& mate : mates) {
    const std::string who = text(mate.rank, " (process ", mate.process, ')');
    if (mate.stopped) {
      all.push_back(text(who, " is stopped"));
    } else if (all_come && mate.inside != call) {
      all.push_back(mate.inside.empty() ? text(who, " has not come to it") : text(who, " is in ", mate.inside));
    }
  }
  if (all.size() > most) {
    const std::size_t more = all.size() - most;
    all.resize(most);
    all.push_back(text(more, " more neither"));
  }
  const int there = static_cast<int>(mates.size()) + 1;
  if (all_come && there < launch.here)
    all.push_back(
        text(launch.here - there, " of ", launch.here, " cannot be seen (ended, or not begun, or in a container)"));
  if (all.empty() && !all_come) return {};
  if (all.empty()) return text("all ", there, " ranks on this host are in it");
  return text("of the ranks on this host, ", join(all, ", "));
}

}  // namespace lockstep
