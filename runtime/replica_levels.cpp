// SPDX-License-Identifier: Apache-2.0
// Finds the levels of the machine at which replicas meet.
#include "runtime/replica_levels.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

namespace lockstep::detail {
namespace {

// Merges the groups of replicas that share a unit.
std::vector<int> joined(std::vector<int> groups, const std::vector<int>& places) {
  for (std::size_t a = 0; a < groups.size(); ++a) {
    for (std::size_t b = a + 1; b < groups.size(); ++b) {
      if (places[a] == none || places[a] != places[b] || groups[a] == groups[b]) continue;
      const auto [to, from] = std::minmax(groups[a], groups[b]);
      std::ranges::replace(groups, int{from}, int{to});
    }
  }
  return groups;
}

}  // namespace

std::vector<ReplicaLevel> replica_levels(const std::vector<SharedUnits>& replicas) {
  constexpr std::pair<const char*, int SharedUnits::*> kinds[] = {{"core", &SharedUnits::core},
                                                                  {"L2 cache", &SharedUnits::l2},
                                                                  {"L3 cache", &SharedUnits::l3},
                                                                  {"NUMA node", &SharedUnits::numa},
                                                                  {"package", &SharedUnits::package}};
  std::vector<ReplicaLevel> levels;
  std::vector<int> groups(replicas.size());
  std::iota(groups.begin(), groups.end(), 0);
  const auto add = [&](const char* name, const std::vector<int>& places) {
    const std::vector<int> now = joined(groups, places);
    if (now != groups) levels.push_back({name, now});
    groups = now;
  };
  for (const auto& [name, kind] : kinds) {
    std::vector<int> places(replicas.size());
    std::ranges::transform(replicas, places.begin(), [kind = kind](const SharedUnits& each) { return each.*kind; });
    add(name, places);
  }
  add("process", std::vector<int>(replicas.size(), 0));
  return levels;
}

}  // namespace lockstep::detail
