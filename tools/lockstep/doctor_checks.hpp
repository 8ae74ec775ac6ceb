// SPDX-License-Identifier: Apache-2.0
// Judging: from all members' facts and the topology to findings. Pure, so that tests make every check
// fire with facts made by hand. A check is one row of the table in doctor_checks.cpp; what it needs of
// the world must be in Facts or in Topology.
#pragma once

#include <cstdint>
#include <map>
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

struct Outcome {
  std::string summary;  // what a healthy run prints
  std::vector<Finding> findings;

  // Findings that differ in their ranks only become one.
  void add(Finding finding);
  Grade grade() const;
};

struct View {
  std::span<const Facts> facts;  // by rank
  const Topology& topology;

  int size() const { return topology.size(); }
  const Facts& of(int rank) const { return facts[static_cast<std::size_t>(rank)]; }
  const Facts& first_of_node(int node) const { return of(topology.ranks_of_node(node).front()); }
  IndexSet everybody() const { return IndexSet::range(0, size() - 1); }
  IndexSet ranks_of_node(int node) const;
};

struct Check {
  std::string_view name;
  std::string_view looks_at;
  Outcome (*look)(const View& view);
};

std::span<const Check> checks();

struct Diagnosis {
  std::vector<Outcome> outcomes;  // one for each of checks()
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
std::map<std::string, IndexSet> group_ranks(const View& view, Key key) {
  std::map<std::string, IndexSet> values;
  for (int rank = 0; rank < view.size(); ++rank) values[key(view.of(rank))].insert(rank);
  return values;
}

namespace check {

// doctor_checks_job.cpp: is it one job, of one program?
Outcome launcher(const View& view);
Outcome mpi_library(const View& view);
Outcome build(const View& view);
Outcome settings(const View& view);
Outcome hwloc(const View& view);
Outcome clocks(const View& view);

// doctor_checks_memory.cpp: what members of a node share.
Outcome shared_memory(const View& view);
Outcome node_sharing(const View& view);
Outcome huge_pages(const View& view);
Outcome neighbour_memory(const View& view);
Outcome locked_memory(const View& view);
Outcome open_files(const View& view);

// doctor_checks_place.cpp: processors.
Outcome binding(const View& view);
Outcome cores(const View& view);
Outcome cpu_quota(const View& view);
Outcome waiting(const View& view);
Outcome machines(const View& view);

// doctor_checks_gpu.cpp
Outcome gpu_driver(const View& view);
Outcome gpu_sharing(const View& view);
Outcome gpu_state(const View& view);
Outcome nccl_library(const View& view);

// doctor_checks_network.cpp: interfaces and the subnets behind them.
Outcome network(const View& view);

}  // namespace check
}  // namespace lockstep::command
