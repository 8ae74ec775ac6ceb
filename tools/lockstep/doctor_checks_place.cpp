// SPDX-License-Identifier: Apache-2.0
// Checks the cores that ranks may use, and the number of ranks that compete for them.
#include <algorithm>
#include <limits>

#include "tools/lockstep/doctor_checks.hpp"
#include "tools/lockstep/shared_cores.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command::check {
namespace {

IndexSet cores_of(const MachineShape& machine, const IndexSet& pus) {
  IndexSet cores;
  for (const int pu : pus.members()) cores.insert(machine.pus.at(static_cast<std::size_t>(pu)).core);
  return cores;
}

// Describes the ranks of one node on its cores. Quotas belong to another check.
struct CoreUse {
  IndexSet bound;      // cores that some rank may use now
  IndexSet reachable;  // cores that the node's cpusets would allow
  IndexSet tight;      // the ranks at the most crowded place
  std::size_t tight_cores = 1;
  double per_core = 0;  // members for each core there

  std::size_t free() const { return reachable.size() - reachable.intersect(bound).size(); }
};

CoreUse core_use_of(const JobView& view, int node) {
  const Topology& topology = view.topology;
  const MachineShape& machine = topology.machine_of_node(node);
  CoreUse crowd;
  std::map<int, IndexSet> ranks_of_place;
  for (const int rank : topology.ranks_of_node(node)) {
    ranks_of_place[topology.member(rank).place].insert(rank);
    crowd.bound.insert(cores_of(machine, topology.place_of(rank).pus));
    for (const Pu& pu : machine.pus) {
      if (view.of(rank).reachable_pus.contains(pu.os_index)) crowd.reachable.insert(pu.core);
    }
  }
  crowd.reachable.insert(crowd.bound);
  for (const auto& [place, own] : ranks_of_place) {
    const IndexSet& pus = topology.place_of(own.first()).pus;
    IndexSet inside;  // ranks that can run only here
    for (const auto& [other, ranks] : ranks_of_place) {
      if (pus.contains(topology.place_of(ranks.first()).pus)) inside.insert(ranks);
    }
    const std::size_t cores = cores_of(machine, pus).size();
    const double per_core = static_cast<double>(inside.size()) / static_cast<double>(cores);
    if (per_core <= crowd.per_core) continue;
    crowd.per_core = per_core;
    crowd.tight = inside;
    crowd.tight_cores = cores;
  }
  return crowd;
}

// Returns ranks of the node that may run in more than one NUMA node.
IndexSet roaming(const JobView& view, int node) {
  IndexSet ranks;
  const bool several = view.topology.machine_of_node(node).numas() > 1 && view.topology.ranks_of_node(node).size() > 1;
  for (const int rank : view.topology.ranks_of_node(node)) {
    if (several && view.topology.shared_units_of(rank).numa == none) ranks.insert(rank);
  }
  return ranks;
}

}  // namespace

CheckOutcome binding(const JobView& view) {
  CheckOutcome outcome{"no two ranks are bound to one core", {}};
  for (int node = 0; node < view.topology.node_count(); ++node) {
    const CoreUse crowd = core_use_of(view, node);
    const bool enough = view.topology.ranks_of_node(node).size() <= crowd.reachable.size();
    if (crowd.per_core > 1 && (crowd.free() > 0 || enough)) {
      outcome.add(
          {Grade::slow, crowd.tight,
           text(counted(crowd.tight.size(), "rank"), " bound to ", counted(crowd.tight_cores, "core"), " while ",
                crowd.free() > 0 ? text(crowd.free(), " that they may use ", crowd.free() == 1 ? "is" : "are", " idle")
                                 : std::string("others have spare cores")),
           "they share the core: a waiting rank can keep the rank that it waits for from running",
           "mpirun --bind-to core --map-by core ... (check taskset, cpusets and --cpu-bind around it too)"});
    }
    const IndexSet loose = roaming(view, node);
    if (!loose.empty()) {
      outcome.add(
          {Grade::note, loose,
           text("bound to none of the ", view.topology.machine_of_node(node).numas(), " NUMA nodes of the machine"),
           "the system moves them away from their memory",
           "mpirun --bind-to core --map-by core ... (or --bind-to numa --map-by numa for threaded ranks)"});
    }
  }
  return outcome;
}

namespace {

// Holds nodes on one kernel, such as containers, which compete for the same cores.
struct SharedMachine {
  IndexSet ranks;
  IndexSet cores;
  std::size_t nodes = 0;

  bool crowded() const { return ranks.size() > cores.size(); }
  std::string what() const {
    return text(counted(ranks.size(), "rank"), nodes > 1 ? text(" of ", nodes, " nodes") : "", " on ",
                counted(cores.size(), "core"), " of one machine");
  }
};

std::map<std::string, SharedMachine> shared_machines(const JobView& view) {
  std::map<std::string, SharedMachine> all;
  for (int node = 0; node < view.topology.node_count(); ++node) {
    SharedMachine& machine = all[view.first_of_node(node).kernel];
    machine.ranks.insert(view.ranks_of_node(node));
    machine.cores.insert(core_use_of(view, node).reachable);
    ++machine.nodes;
  }
  return all;
}

}  // namespace

CheckOutcome cores(const JobView& view) {
  std::size_t most_ranks = 0;
  std::size_t least_cores = std::numeric_limits<std::size_t>::max();
  CheckOutcome outcome;
  for (const auto& [kernel, machine] : shared_machines(view)) {
    most_ranks = std::max(most_ranks, machine.ranks.size());
    least_cores = std::min(least_cores, machine.cores.size());
    if (!machine.crowded()) continue;
    outcome.add({Grade::slow, machine.ranks, machine.what(),
                 "they take turns, so every exchange waits for the scheduler; times do not measure the hardware",
                 text("mpirun --map-by ppr:", std::max<std::size_t>(1, machine.cores.size() / machine.nodes),
                      ":node ... on more machines; no action if this is intended")});
  }
  outcome.summary =
      text("at most ", counted(most_ranks, "rank"), " on a machine, at least ", counted(least_cores, "core"));
  return outcome;
}

// Takes ranks with equal quotas for ranks of one control group, on any cores.
CheckOutcome cpu_quota(const JobView& view) {
  bool any = false;
  CheckOutcome outcome;
  for (int node = 0; node < view.topology.node_count(); ++node) {
    std::map<double, IndexSet> groups;
    for (const int rank : view.topology.ranks_of_node(node))
      groups[view.topology.place_of(rank).cpu_quota].insert(rank);
    groups.erase(0);
    any = any || !groups.empty();
    for (const auto& [quota, ranks] : groups) {
      const std::size_t members = ranks.size();
      if (static_cast<double>(members) <= quota) continue;
      outcome.add({Grade::slow, ranks,
                   text("the control group grants the time of ", quota, " cores to ", counted(members, "rank")),
                   "when it is used up, all ranks stand still until the next period, often in mid-exchange",
                   view.of(ranks.first()).container == "kubernetes"
                       ? text("set resources.limits.cpu of the pod to ", members, " or more, or leave it out")
                       : text("docker run --cpus=", members,
                              " ..., or systemctl set-property UNIT CPUQuota=", 100 * members, "%")});
    }
  }
  outcome.summary = any ? "enough for all ranks" : "none";
  return outcome;
}

CheckOutcome waiting(const JobView& view) {
  CheckOutcome outcome{"each rank can wait on a core of its own", {}};
  const auto machines = shared_machines(view);
  for (int node = 0; node < view.topology.node_count(); ++node) {
    const bool crowded = machines.at(view.first_of_node(node).kernel).crowded();
    if (!crowded && view.topology.members_per_core(node) <= 1) continue;
    outcome.summary = "MPI yields where ranks share cores";
    for (const int rank : view.topology.ranks_of_node(node)) {
      if (!is_open_mpi(view.of(rank)) || view.of(rank).yields) continue;
      outcome.add(
          {Grade::note,
           {rank},
           "Open MPI may wait without yielding while ranks share cores",
           "a rank that waits takes the core from the one that it waits for: small messages take 100 times longer",
           "mpirun --mca mpi_yield_when_idle 1 ..."});
    }
  }
  return outcome;
}

namespace {

// Looks for several nodes on one kernel. Containers and virtual nodes have names and networks of their own.
void judge_one_machine(const JobView& view, CheckOutcome& outcome) {
  std::map<std::string_view, std::vector<int>> nodes;
  for (int node = 0; node < view.topology.node_count(); ++node)
    nodes[machine_of_boot_id(view.first_of_node(node).kernel)].push_back(node);
  for (const auto& [machine, its_nodes] : nodes) {
    if (its_nodes.size() < 2) continue;
    IndexSet ranks;
    for (const int node : its_nodes) ranks.insert(view.ranks_of_node(node));
    outcome.add(
        {Grade::note, ranks, text(its_nodes.size(), " nodes share one machine (same boot id)"),
         "they share its cores and memory, and data between them does not leave the machine: times tell little of a "
         "cluster",
         "no action if containers or virtual nodes are intended; otherwise ask for different hosts"});
  }
}

}  // namespace

CheckOutcome machines(const JobView& view) {
  std::map<std::string, IndexSet> kinds;
  for (int rank = 0; rank < view.size(); ++rank) {
    const MachineShape& machine = view.topology.machine_of(rank);
    kinds[text(machine.model, " with ", counted(static_cast<std::size_t>(machine.cores()), "core"))].insert(rank);
  }
  CheckOutcome outcome{kinds.begin()->first, {}};
  if (kinds.size() > 1) {
    outcome.add({Grade::note, odd_ones(kinds), text("nodes differ: ", by_ranks(kinds)),
                 "all ranks wait for the slowest; results may differ in the last bits if instruction sets differ",
                 "ask the batch system for one kind of node (Slurm: --constraint), or give the faster ones more work"});
  }
  judge_one_machine(view, outcome);
  return outcome;
}

}  // namespace lockstep::command::check
