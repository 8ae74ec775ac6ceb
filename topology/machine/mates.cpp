// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/mates.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <map>
#include <memory>
#include <optional>

#include "topology/base/text.hpp"
#include "topology/machine/launcher.hpp"

namespace lockstep {
namespace {

constexpr std::string_view mark = "lockstep in ";

// Of a file in /proc; nothing: it cannot be read.
std::string read_all(const std::string& path) {
  constexpr std::size_t most = 4U << 20U;
  std::string all;
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return all;
  std::array<char, 8192> part{};
  for (ssize_t came = 0; all.size() < most && (came = ::read(file, part.data(), part.size())) > 0;)
    all.append(part.data(), static_cast<std::size_t>(came));
  ::close(file);
  return all;
}

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
  for (const std::string& each : split(read_all(text("/proc/", process, "/environ")), '\0')) {
    if (const std::size_t sign = each.find('='); sign != std::string::npos)
      all.emplace(each.substr(0, sign), each.substr(sign + 1));
  }
  return all;
}

// After the name of its program, which may have spaces: its state, and the process that has started it.
struct Stat {
  char state = '?';
  int parent = 0;
};
std::optional<Stat> stat_of(int process) {
  const std::string all = read_all(text("/proc/", process, "/stat"));
  const std::size_t end = all.rfind(')');
  if (end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields = split(trim(std::string_view(all).substr(end + 1)), ' ');
  if (fields.size() < 2 || fields[0].size() != 1) return std::nullopt;
  return Stat{fields[0].front(), static_cast<int>(parse_integer(fields[1]).value_or(0))};
}

std::string name_of(const Environment& environment, int parent) {
  if (const char* name = environment("PMIX_NAMESPACE")) return text("PMIx ", name);
  const char* job = environment("SLURM_JOB_ID");
  const char* step = environment("SLURM_STEP_ID");
  if (job != nullptr && step != nullptr) return text("Slurm ", job, '.', step);
  return launcher_rank(environment) ? text("child of ", parent) : "";
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
  launch.name = name_of(environment, ::getppid());
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
  std::map<int, Mate> found;
  for (const int process : numbers_in("/proc")) {
    if (process == ::getpid()) continue;
    const auto stat = stat_of(process);
    if (!stat) continue;
    const Variables variables = variables_of(process);
    const Environment theirs = [&](const char* name) {
      const auto at = variables.find(std::string_view(name));
      return at == variables.end() ? nullptr : at->second.c_str();
    };
    const auto rank = launcher_rank(theirs);
    if (!rank || *rank == launch.rank || name_of(theirs, stat->parent) != launch.name) continue;
    const Mate mate{*rank, process, stat->state == 'T' || stat->state == 't', inside_of(process)};
    // A script that starts the rank has its variables, too: the one in the call counts, or the younger one.
    const auto [entry, is_new] = found.try_emplace(*rank, mate);
    if (!is_new && entry->second.inside.empty() && (!mate.inside.empty() || mate.process > entry->second.process))
      entry->second = mate;
  }
  std::vector<Mate> all;
  all.reserve(found.size());
  for (auto& [rank, mate] : found) all.push_back(std::move(mate));
  return all;
}

InCall::InCall(std::string_view call) : file_(::memfd_create(text(mark, call).c_str(), MFD_CLOEXEC)) {}

InCall::~InCall() {
  if (file_ >= 0) ::close(file_);
}

std::string who_is_missing(std::string_view call, const Launch& launch, const std::vector<Mate>& mates) {
  constexpr std::size_t most = 8;
  if (mates.empty() && launch.here < 2) return {};
  std::vector<std::string> all;
  for (const Mate& mate : mates) {
    const std::string who = text(mate.rank, " (process ", mate.process, ')');
    if (mate.stopped) {
      all.push_back(text(who, " is stopped"));
    } else if (mate.inside != call) {
      all.push_back(mate.inside.empty() ? text(who, " has not come to it") : text(who, " is in ", mate.inside));
    }
  }
  if (all.size() > most) {
    const std::size_t more = all.size() - most;
    all.resize(most);
    all.push_back(text(more, " more neither"));
  }
  const int there = static_cast<int>(mates.size()) + 1;
  if (there < launch.here)
    all.push_back(
        text(launch.here - there, " of ", launch.here, " cannot be seen (ended, or not begun, or in a container)"));
  if (all.empty()) return text("all ", there, " ranks on this host are in it");
  return text("of the ranks on this host, ", join(all, ", "));
}

}  // namespace lockstep
