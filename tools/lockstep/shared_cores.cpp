// SPDX-License-Identifier: Apache-2.0
// Counts ranks by machine and core. The boot id identifies a machine.
#include "tools/lockstep/shared_cores.hpp"

#include <algorithm>
#include <fstream>
#include <map>

#include "bench/number_text.hpp"
#include "topology/base/text.hpp"
#include "topology/exchange.hpp"

namespace lockstep::command {
namespace {

// Identifies cores by the system's number of their first hardware thread, which containers of one machine share.
IndexSet cores_of_rank(const Topology& topology, int rank) {
  const std::vector<Pu>& pus = topology.machine_of(rank).pus;
  std::map<int, int> first;  // by core
  for (const Pu& pu : pus) {
    const auto [found, is_new] = first.emplace(pu.core, pu.os_index);
    if (!is_new) found->second = std::min(found->second, pu.os_index);
  }
  IndexSet cores;
  for (const int pu : topology.place_of(rank).pus.members())
    cores.insert(first.at(pus.at(static_cast<std::size_t>(pu)).core));
  return cores;
}

// Returns the boot id. A machine that hides it counts as one by itself.
std::string kernel_of(const Topology& topology, int rank) {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id.empty() ? topology.node(topology.member(rank).node).host : std::string(machine_of_boot_id(id));
}

}  // namespace

std::string_view machine_of_boot_id(std::string_view id) {
  constexpr std::size_t letters = 36;
  const bool is_id = id.size() == letters && std::ranges::count(id, '-') == 4;
  return is_id ? id.substr(0, id.rfind('-')) : id;
}

std::string SharedCores::what() const {
  using bench::number_text::counted;
  return text(counted(ranks, "rank"), nodes > 1 ? text(" of ", nodes, " nodes") : "", " on ", counted(cores, "core"),
              " of one machine");
}

SharedCores most_shared_cores(const Topology& topology, const std::vector<std::string>& kernels) {
  std::map<std::pair<std::string, int>, IndexSet> known;  // by kernel and place
  std::map<std::string, std::vector<std::pair<int, IndexSet>>> machines;
  for (int rank = 0; rank < topology.size(); ++rank) {
    const std::string& kernel = kernels.at(static_cast<std::size_t>(rank));
    const auto [cores, is_new] = known.try_emplace({kernel, topology.member(rank).place});
    if (is_new) cores->second = cores_of_rank(topology, rank);
    machines[kernel].emplace_back(topology.member(rank).node, cores->second);
  }
  SharedCores most;
  for (const auto& [place, cores] : known) {
    IndexSet nodes;
    std::size_t inside = 0;  // ranks that can run nowhere else
    for (const auto& [node, others] : machines.at(place.first)) {
      if (!cores.contains(others)) continue;
      ++inside;
      nodes.insert(node);
    }
    if (inside * most.cores > most.ranks * cores.size()) most = {inside, cores.size(), nodes.size()};
  }
  return most;
}

SharedCores most_shared_cores(Session& session) {
  const std::string mine = kernel_of(session.topology(), session.rank());
  std::vector<std::string> kernels;
  for (const Bytes& each : session.exchange().all_gather("kernels of the ranks' machines", to_bytes(mine)))
    kernels.push_back(lockstep::to_string(each));
  return most_shared_cores(session.topology(), kernels);
}

}  // namespace lockstep::command
