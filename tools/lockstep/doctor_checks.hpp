// SPDX-License-Identifier: Apache-2.0
// Turns the facts of all members and the topology into findings. It has no side effects, so that tests trigger every
// check with artificial facts. A check is one row of the table in doctor_checks.cpp. Everything that it needs must be
// in Facts or in Topology.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tools/lockstep/doctor_facts.hpp"
#include "topology/topology.hpp"

namespace lockstep::command {

// Grades a finding. note: good to know; slow: works, but slower than it could; broken: will fail, or compute wrong
// results.
enum class Grade : std::uint8_t { ok, note, slow, broken };

std::string_view to_string(Grade grade);

// Holds one finding: the ranks that it concerns, the fact, the reason and the remedy.
struct Finding {
  Grade grade = Grade::note;
  IndexSet ranks;  // the ranks that it concerns
  std::string what;
  std::string why;  // the reason why it matters
  std::string fix;  // the command that mends it
  bool operator==(const Finding&) const = default;
};

// Holds the outcome of one check.
struct CheckOutcome {
  std::string summary;  // printed by a healthy run
  std::vector<Finding> findings;

  // Adds a finding. Findings that differ only in their ranks become one.
  void add(Finding finding);
  Grade grade() const;
};

// Refers to the facts and the topology of a job; it owns neither.
struct JobView {
  std::span<const Facts> facts;  // by rank
  const Topology& topology;

  int size() const { return topology.size(); }
  const Facts& of(int rank) const { return facts[static_cast<std::size_t>(rank)]; }
  const Facts& first_of_node(int node) const { return of(topology.ranks_of_node(node).front()); }
  IndexSet everybody() const { return IndexSet::range(0, size() - 1); }
  IndexSet ranks_of_node(int node) const;
};

// Holds a check: its name, its subject for the help, and its function.
struct DoctorCheck {
  std::string_view name;
  std::string_view looks_at;
  CheckOutcome (*look)(const JobView& view);
};

// Returns all checks, in the order of the report.
std::span<const DoctorCheck> checks();

// Holds the fastest subnet that all machines share.
struct CommonSubnet {
  std::vector<int> nodes;               // one node for each set of interfaces, at least two, ascending
  std::vector<std::string> addresses;   // of each of those nodes
  std::int64_t claimed_mbit_per_s = 0;  // by the slowest interface; 0: unknown
};

// Returns true if a link with these rates is slow. One connection of one rank on a busy host need not fill a fast link,
// so 2 Gbit/s are enough. Between virtual nodes on two cores with a load of 8, the best of three tries was 5 Gbit/s.
bool is_slow_link(double measured_mbit_per_s, std::int64_t claimed_mbit_per_s);

// Returns nothing if there is only one machine, or no such subnet.
std::optional<CommonSubnet> common_subnet_of(const JobView& view);

// Holds the outcomes of all checks.
struct Diagnosis {
  std::vector<CheckOutcome> outcomes;  // one for each of checks()
  Grade worst() const;
  std::size_t count(Grade grade) const;
};

// Runs all checks. `facts` has one element for each member of the topology, by rank.
Diagnosis examine(std::span<const Facts> facts, const Topology& topology);

// The following functions serve the checks. The checks themselves come after them, by file.

// Returns "4 ranks" or "1 rank".
std::string counted(std::size_t count, std::string_view one);
// Returns "a on ranks 0-3 and b on rank 4".
std::string by_ranks(const std::map<std::string, IndexSet>& values);
// Returns "rank 3" or "ranks 0-7,9".
std::string name_ranks(const IndexSet& ranks);
// Returns the ranks that do not have the most frequent value.
IndexSet odd_ones(const std::map<std::string, IndexSet>& values);
bool is_open_mpi(const Facts& facts);

template <class Key>
std::map<std::string, IndexSet> group_ranks(const JobView& view, Key key) {
  std::map<std::string, IndexSet> values;
  for (int rank = 0; rank < view.size(); ++rank) values[key(view.of(rank))].insert(rank);
  return values;
}

namespace check {

// The file doctor_checks_job.cpp checks that it is one job of one program.
CheckOutcome launcher(const JobView& view);
CheckOutcome mpi_library(const JobView& view);
CheckOutcome build(const JobView& view);
CheckOutcome settings(const JobView& view);
CheckOutcome hwloc(const JobView& view);
CheckOutcome clocks(const JobView& view);

// The file doctor_checks_memory.cpp checks the memory that members of a node share.
CheckOutcome shared_memory(const JobView& view);
CheckOutcome node_sharing(const JobView& view);
CheckOutcome huge_pages(const JobView& view);
CheckOutcome neighbour_memory(const JobView& view);
CheckOutcome locked_memory(const JobView& view);
CheckOutcome open_files(const JobView& view);
CheckOutcome thresholds(const JobView& view);

// The file doctor_checks_place.cpp checks processors and binding.
CheckOutcome binding(const JobView& view);
CheckOutcome cores(const JobView& view);
CheckOutcome cpu_quota(const JobView& view);
CheckOutcome waiting(const JobView& view);
CheckOutcome machines(const JobView& view);

// The file doctor_checks_gpu.cpp checks GPUs and NCCL.
CheckOutcome gpu_driver(const JobView& view);
CheckOutcome gpu_sharing(const JobView& view);
CheckOutcome gpu_state(const JobView& view);
CheckOutcome nccl_library(const JobView& view);

// The file doctor_checks_network.cpp checks interfaces and the subnets behind them.
CheckOutcome network(const JobView& view);

}  // namespace check
}  // namespace lockstep::command
