// SPDX-License-Identifier: Apache-2.0
// Reads limits from the files of both versions of control groups.
#include "topology/base/cgroup.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <vector>

#include "topology/base/text.hpp"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

std::string first_line(const fs::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

std::optional<double> quota_v1(const fs::path& group) {
  const auto quota = parse_number(first_line(group / "cpu.cfs_quota_us"));
  const auto period = parse_number(first_line(group / "cpu.cfs_period_us"));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

std::optional<double> quota_v2(const fs::path& group) { return parse_cpu_max(first_line(group / "cpu.max")); }

// Returns the value of `name` in a file with lines "name value", or 0.
double value_in(const fs::path& path, std::string_view name) {
  std::ifstream file(path);
  std::string word;
  double value = 0;
  while (file >> word >> value) {
    if (word == name) return value;
  }
  return 0;
}

std::uint64_t available_bytes(const fs::path& meminfo) {
  std::ifstream file(meminfo);
  for (std::string line; std::getline(file, line);) {
    constexpr std::string_view name = "MemAvailable:";
    if (!line.starts_with(name)) continue;
    const std::string_view rest = trim(std::string_view(line).substr(name.size()));
    const auto kib = parse_integer(rest.substr(0, rest.find(' ')));
    if (kib && *kib > 0) return static_cast<std::uint64_t>(*kib) * 1024;
  }
  return unlimited_bytes;
}

// Calls `visit` with the folders of this process's groups for a controller ("cpu", "memory"), its own first, up to the
// mount. In a container the mount shows the own group as its root, so some of the folders may not exist.
template <class Visit>
void each_group(const std::string& root, std::string_view controller, const Visit& visit) {
  const fs::path top(root);
  std::ifstream file(top / "proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    const auto parts = split(line, ':');  // id:controllers:path
    if (parts.size() < 3) continue;
    const auto controllers = split(parts[1], ',');
    const bool version_1 = std::ranges::find(controllers, controller) != controllers.end();
    if (!version_1 && !parts[1].empty()) continue;
    fs::path mount = top / "sys/fs/cgroup";
    if (version_1) mount /= controller;
    for (fs::path group = parts[2];; group = group.parent_path()) {
      visit(mount / group.relative_path(), version_1);
      if (!group.has_relative_path()) break;
    }
  }
}

}  // namespace

std::optional<double> parse_cpu_max(std::string_view line) {
  const std::size_t blank = line.find(' ');
  if (blank == std::string_view::npos) return std::nullopt;
  const auto quota = parse_number(line.substr(0, blank));
  const auto period = parse_number(trim(line.substr(blank)));
  if (!quota || !period || *quota <= 0 || *period <= 0) return std::nullopt;
  return *quota / *period;
}

std::optional<double> cpu_quota(const std::string& root) {
  std::optional<double> least;
  each_group(root, "cpu", [&](const fs::path& folder, bool version_1) {
    const auto here = version_1 ? quota_v1(folder) : quota_v2(folder);
    if (here) least = std::min(least.value_or(*here), *here);
  });
  return least;
}

double throttled_us(const std::string& root) {
  double most = 0;
  each_group(root, "cpu", [&](const fs::path& folder, bool version_1) {
    const fs::path stat = folder / "cpu.stat";
    most = std::max(most, version_1 ? value_in(stat, "throttled_time") / 1000 : value_in(stat, "throttled_usec"));
  });
  return most;
}

std::uint64_t free_memory_bytes(const std::string& root) {
  std::uint64_t least = available_bytes(fs::path(root) / "proc/meminfo");
  each_group(root, "memory", [&](const fs::path& folder, bool version_1) {
    const auto limit = parse_integer(trim(first_line(folder / (version_1 ? "memory.limit_in_bytes" : "memory.max"))));
    const auto used =
        parse_integer(trim(first_line(folder / (version_1 ? "memory.usage_in_bytes" : "memory.current"))));
    if (!limit || *limit < 0) return;
    const std::int64_t left = *limit - std::min(*limit, std::max<std::int64_t>(used.value_or(0), 0));
    least = std::min(least, static_cast<std::uint64_t>(left));
  });
  return least;
}

}  // namespace lockstep
