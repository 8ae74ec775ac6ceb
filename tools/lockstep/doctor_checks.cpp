// SPDX-License-Identifier: Apache-2.0
// Holds the table of all checks, runs them, and merges equal findings.
#include "tools/lockstep/doctor_checks.hpp"

#include <algorithm>
#include <array>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::command {
namespace {

constexpr std::array check_table = {
    DoctorCheck{"launcher", "as many processes in MPI as the launcher meant", check::launcher},
    DoctorCheck{"MPI library", "one MPI library, the launcher's own, on all ranks", check::mpi_library},
    DoctorCheck{"build", "the same version of Lockstep on all ranks", check::build},
    DoctorCheck{"settings", "LOCKSTEP_ variables: equal on all ranks, no unknown ones", check::settings},
    DoctorCheck{"hwloc", "variables that replace the real machine by a description", check::hwloc},
    DoctorCheck{"machines", "the same kind of processor on all nodes, and nodes that are one machine", check::machines},
    DoctorCheck{"clock", "the cost of reading the clock, and clocks that differ between nodes", check::clocks},
    DoctorCheck{"binding", "ranks bound to cores of their own", check::binding},
    DoctorCheck{"cores", "no more ranks than cores on a machine", check::cores},
    DoctorCheck{"CPU quota", "the processor time that the control group grants", check::cpu_quota},
    DoctorCheck{"waiting", "MPI that yields where ranks outnumber cores", check::waiting},
    DoctorCheck{"shared memory", "the size of /dev/shm, by allocating in it", check::shared_memory},
    DoctorCheck{"node sharing", "ranks of one machine that can share memory", check::node_sharing},
    DoctorCheck{"huge pages", "huge pages for shared memory", check::huge_pages},
    DoctorCheck{"neighbour memory", "reading the memory of every neighbour on the node, by trying",
                check::neighbour_memory},
    DoctorCheck{"thresholds", "measured thresholds of the node's memory, and the number of measurements that counted",
                check::thresholds},
    DoctorCheck{"locked memory", "memory that network adapters and GPUs may pin, by locking some",
                check::locked_memory},
    DoctorCheck{"open files", "the limit on open files and connections", check::open_files},
    DoctorCheck{"network", "interfaces and subnets that not all nodes share, and measured link rates", check::network},
    DoctorCheck{"GPU driver", "GPUs that can be used: driver against runtime, on all ranks", check::gpu_driver},
    DoctorCheck{"GPU sharing", "ranks that take the same GPU", check::gpu_sharing},
    DoctorCheck{"GPU state", "compute mode, slices (MIG) and ECC of the GPUs", check::gpu_state},
    DoctorCheck{"NCCL", "one NCCL that can be loaded on all ranks with a GPU", check::nccl_library},
};

}  // namespace

std::string_view to_string(Grade grade) {
  constexpr std::array<std::string_view, 4> names = {"ok", "note", "slow", "broken"};
  return names.at(static_cast<std::size_t>(grade));
}

void CheckOutcome::add(Finding finding) {
  for (Finding& known : findings) {
    if (known.grade != finding.grade || known.what != finding.what || known.fix != finding.fix) continue;
    known.ranks.insert(finding.ranks);
    return;
  }
  findings.push_back(std::move(finding));
}

Grade CheckOutcome::grade() const {
  Grade worst = Grade::ok;
  for (const Finding& each : findings) worst = std::max(worst, each.grade);
  return worst;
}

IndexSet JobView::ranks_of_node(int node) const {
  IndexSet ranks;
  for (const int rank : topology.ranks_of_node(node)) ranks.insert(rank);
  return ranks;
}

std::span<const DoctorCheck> checks() { return check_table; }

Grade Diagnosis::worst() const {
  Grade worst = Grade::ok;
  for (const CheckOutcome& each : outcomes) worst = std::max(worst, each.grade());
  return worst;
}

std::size_t Diagnosis::count(Grade grade) const {
  std::size_t all = 0;
  for (const CheckOutcome& each : outcomes) {
    all += static_cast<std::size_t>(std::ranges::count(each.findings, grade, &Finding::grade));
  }
  return all;
}

Diagnosis examine(std::span<const Facts> facts, const Topology& topology) {
  if (facts.size() != static_cast<std::size_t>(topology.size())) {
    throw Error(Code::internal, text("facts of ", facts.size(), " among ", topology.size(), " members"));
  }
  const JobView view{facts, topology};
  Diagnosis diagnosis;
  diagnosis.outcomes.reserve(check_table.size());
  for (const DoctorCheck& each : check_table) diagnosis.outcomes.push_back(each.look(view));
  return diagnosis;
}

std::string counted(std::size_t count, std::string_view one) { return text(count, " ", one, count == 1 ? "" : "s"); }

std::string name_ranks(const IndexSet& ranks) {
  return text(ranks.size() == 1 ? "rank " : "ranks ", ranks.to_string());
}

std::string by_ranks(const std::map<std::string, IndexSet>& values) {
  std::vector<std::string> parts;
  parts.reserve(values.size());
  for (const auto& [value, ranks] : values) {
    parts.push_back(text(value.empty() ? "nothing" : printable(value), " on ", name_ranks(ranks)));
  }
  return join(parts, " and ");
}

IndexSet odd_ones(const std::map<std::string, IndexSet>& values) {
  const auto size = [](const auto& each) { return each.second.size(); };
  const auto commonest = std::ranges::max_element(values, {}, size);
  IndexSet odd;
  for (auto each = values.begin(); each != values.end(); ++each) {
    if (each != commonest) odd.insert(each->second);
  }
  return odd;
}

bool is_open_mpi(const Facts& facts) { return facts.mpi.starts_with("Open MPI"); }

}  // namespace lockstep::command
