// SPDX-License-Identifier: Apache-2.0
// Judging: from all members' facts and the topology to findings. Pure, so that tests make every check
// fire with facts made by hand. A check is one row of the table in doctor_checks.cpp; what it needs of
// the world must be in Facts or in Topology.
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

// note: good to know; slow: works, but not as fast as it could; broken: will fail or compute nonsense.
enum class Grade : std::uint8_t { ok, note, slow, broken };

std::string_view to_string(Grade grade);

struct Finding {
  Grade grade = Grade::note;
  IndexSet ranks;  // where
  std::string what;
  std::string why;   // it matters
  std::string mend;  // the command that mends it
  bool operator==(const Finding&) const = default;
};

struct CheckOutcome {
  std::string summary;  // what a healthy run prints
  std::vector<Finding> findings;

  // Findings that differ in their ranks only become one.
  void add(Finding finding);
  Grade grade() const;
};

struct JobView {
  std::span<const Facts> facts;  // by rank
  const Topology& topology;

  int size() const { return topology.size(); }
  const Facts& of(int rank) const { return facts[static_cast<std::size_t>(rank)]; }
  const Facts& first_of_node(int node) const { return of(topology.ranks_of_node(node).front()); }
  IndexSet everybody() const { return IndexSet::range(0, size() - 1); }
  IndexSet ranks_of_node(int node) const;
};

struct DoctorCheck {
  std::string_view name;
  std::string_view looks_at;
  CheckOutcome (*look)(const JobView& view);
};

std::span<const DoctorCheck> checks();

// The subnet that all machines share, and the fastest of these.
struct CommonSubnet {
  std::vector<int> nodes;               // one for each set of interfaces, at least two, ascending
  std::vector<std::string> addresses;   // of each of them
  std::int64_t claimed_mbit_per_s = 0;  // by the slowest interface; 0: not known
};

// True if a link is slow that carries so much and claims so much. One connection of one rank on a busy host need not
// fill a fast link: 2 Gbit/s are enough (between virtual nodes on two cores with a load of 8, the best of three tries
// was 5).
bool is_slow_link(double measured_mbit_per_s, std::int64_t claimed_mbit_per_s);

// Returns nothing if there is one machine only, or no such subnet.
std::optional<CommonSubnet> common_subnet_of(const JobView& view);

struct Diagnosis {
  std::vector<CheckOutcome> outcomes;  // one for each of checks()
  Grade worst() const;
  std::size_t count(Grade grade) const;
};

// `facts` by rank, one for each member of the topology.
Diagnosis examine(std::span<const Facts> facts, const Topology& topology);

// What the checks are made of, and the checks themselves by file.

// "4 ranks", "1 rank".
std::string counted(std::size_t count, std::string_view one);
// "a on ranks 0-3 and b on rank 4".
std::string by_ranks(const std::map<std::string, IndexSet>& values);
// "rank 3" or "ranks 0-7,9".
std::string name_ranks(const IndexSet& ranks);
// The ranks whose value is not the commonest.
IndexSet odd_ones(const std::map<std::string, IndexSet>& values);
bool is_open_mpi(const Facts& facts);

template <class Key>
std::map<std::string, IndexSet> group_ranks(const JobView& view, Key key) {
  std::map<std::string, IndexSet> values;
  for (int rank = 0; rank < view.size(); ++rank) values[key(view.of(rank))].insert(rank);
  return values;
}

namespace check {

// doctor_checks_job.cpp: is it one job, of one program?
CheckOutcome launcher(const JobView& view);
CheckOutcome mpi_library(const JobView& view);
CheckOutcome build(const JobView& view);
CheckOutcome settings(const JobView& view);
CheckOutcome hwloc(const JobView& view);
CheckOutcome clocks(const JobView& view);

// doctor_checks_memory.cpp: what members of a node share.
CheckOutcome shared_memory(const JobView& view);
CheckOutcome node_sharing(const JobView& view);
CheckOutcome huge_pages(const JobView& view);
CheckOutcome neighbour_memory(const JobView& view);
CheckOutcome locked_memory(const JobView& view);
CheckOutcome open_files(const JobView& view);

// doctor_checks_place.cpp: processors.
CheckOutcome binding(const JobView& view);
CheckOutcome cores(const JobView& view);
CheckOutcome cpu_quota(const JobView& view);
CheckOutcome waiting(const JobView& view);
CheckOutcome machines(const JobView& view);

// doctor_checks_gpu.cpp
CheckOutcome gpu_driver(const JobView& view);
CheckOutcome gpu_sharing(const JobView& view);
CheckOutcome gpu_state(const JobView& view);
CheckOutcome nccl_library(const JobView& view);

// doctor_checks_network.cpp: interfaces and the subnets behind them.
CheckOutcome network(const JobView& view);

}  // namespace check
}  // namespace lockstep::command
