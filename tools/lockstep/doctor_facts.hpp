// SPDX-License-Identifier: Apache-2.0
// What each member finds out about the place where it runs, by asking the system and by trying
// (doctor_probes.hpp). All members end up with everybody's facts; judging them is doctor_checks.hpp's.
// Nothing secret is in here: of the environment only the few variables that a check names.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "topology/base/bytes.hpp"
#include "topology/base/settings.hpp"
#include "topology/exchange.hpp"
#include "topology/topology.hpp"

namespace lockstep {
class Session;
}

namespace lockstep::command {

// What a member tries to get of a resource, and what it got.
struct ResourceGrant {
  std::uint64_t wanted_bytes = 0;
  std::uint64_t got_bytes = 0;
  int error = 0;  // errno where it got less; 0: none
  bool operator==(const ResourceGrant&) const = default;
};

struct Facts {
  // Where.
  std::string host;
  std::string kernel;               // the kernel's boot id: equal for containers on one machine
  std::uint64_t net_namespace = 0;  // equal on one kernel: the same interfaces
  std::string container;            // "docker", "podman", "kubernetes"; empty: none seen

  // What runs.
  std::string version;
  std::string commit;
  std::string cuda;                        // that this build was made with
  std::string mpi;                         // "Open MPI 4.1.4"
  std::vector<std::string> mpi_libraries;  // files of MPI libraries in this process
  std::string launcher_variable;           // one that means more than one process; empty: none does
  int launcher_size = 0;
  std::string launcher_command;    // what to type instead
  bool cluster_named = false;      // TF_CONFIG names a cluster: a world of one is meant
  bool open_mpi_launcher = false;  // its variables are there
  bool pmi_launcher = false;       // MPICH's or a batch system's
  bool yields = false;             // mpi_yield_when_idle is on
  std::string hwloc_override;      // "HWLOC_XMLFILE=..." that replaces the real machine; empty: none

  // Settings: one value for each of setting_rows(), and a sentence for each unknown variable.
  std::vector<std::string> settings;
  std::vector<std::string> setting_warnings;

  // Memory.
  ResourceGrant shared_memory;         // all members of a node at the same time
  bool shared_memory_is_disk = false;  // what lies at /dev/shm is no memory
  ResourceGrant locked_memory;
  std::uint64_t lock_limit_bytes = 0;  // largest value: none
  IndexSet unreadable;                 // ranks of the node whose memory could not be read
  int read_error = 0;                  // errno of the first of them; 0: it was read, but wrong
  int ptrace_scope = -1;               // yama's; -1: not there
  std::string huge_pages;              // "never" for shared memory; empty: the kernel does not say

  // Limits and time.
  IndexSet reachable_pus;  // numbers of the operating system that the cpuset would allow
  std::uint64_t open_files = 0;
  std::uint64_t open_files_hard = 0;
  std::string clock_source;
  double clock_ns = 0;             // what reading the clock costs
  std::int64_t wall_clock_ns = 0;  // since 1970, just after all members met
  bool rdma = false;               // an adapter that registers memory
  double link_mbit_per_s = 0;  // that came in from another machine; 0: not tried, or nothing came (doctor_links.hpp)

  // GPUs, in the order in which this process sees them.
  bool gpu_built = false;
  int gpu_driver = 0;  // 12040 is 12.4; 0: no driver
  int gpu_runtime = 0;
  std::string why_no_gpu;
  std::vector<std::string> gpu_ids;
  std::vector<std::string> gpu_states;  // as in SeenGpu
  std::string nccl;                     // the version that runs; empty: none
  std::string why_no_nccl;

  bool operator==(const Facts&) const = default;

  Bytes to_bytes() const;
  static Facts from_bytes(std::span<const std::byte> bytes);
};

// What can be had by asking. `given` is what the environment says, which may differ from what the
// session runs with.
Facts ask(const Session& session, const Settings& given);

// Adds what must be tried together with the others, and exchanges all. Everybody calls it. Bounded: a
// second or two where memory is slow, and as long as the exchange waits.
std::vector<Facts> try_and_gather(Exchange& exchange, const Topology& topology, Facts facts);

}  // namespace lockstep::command
