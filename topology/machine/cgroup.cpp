// SPDX-License-Identifier: Apache-2.0
#include "topology/machine/cgroup.hpp"

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

// The smallest quota from the group up to its mount. In a container the mount shows the own group as
// its root, so paths that do not exist are passed over.
std::optional<double> tightest(const fs::path& mount, fs::path group, std::optional<double> (*read)(const fs::path&)) {
  std::optional<double> least;
  while (true) {
    const auto here = read(mount / group.relative_path());
    if (here) least = std::min(least.value_or(*here), *here);
    if (!group.has_relative_path()) return least;
    group = group.parent_path();
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
  const fs::path top(root);
  std::ifstream file(top / "proc/self/cgroup");
  std::optional<double> least;
  for (std::string line; std::getline(file, line);) {
    const auto parts = split(line, ':');  // id:controllers:path
    if (parts.size() < 3) continue;
    const auto controllers = split(parts[1], ',');
    const bool v1 = std::ranges::find(controllers, "cpu") != controllers.end();
    if (!v1 && !parts[1].empty()) continue;
    const fs::path mounts = top / "sys/fs/cgroup";
    const auto found = v1 ? tightest(mounts / "cpu", parts[2], quota_v1) : tightest(mounts, parts[2], quota_v2);
    if (found) least = std::min(least.value_or(*found), *found);
  }
  return least;
}

}  // namespace lockstep
