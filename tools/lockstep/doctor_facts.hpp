// SPDX-License-Identifier: Apache-2.0
// Holds the facts that each member gathers about its environment, by asking the system and by trying
// (doctor_probes.hpp). All members receive the facts of all; doctor_checks.hpp judges them. Nothing here is secret: of
// the environment it has only the few variables that a check names.
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

// Tells the amount of a resource that a member tried to get, and the amount that it got.
struct ResourceGrant {
  std::uint64_t wanted_bytes = 0;
  std::uint64_t got_bytes = 0;
  int error = 0;  // errno if it got less; 0: none
  bool operator==(const ResourceGrant&) const = default;
};

struct Facts {
  // The place of the process.
  std::string host;
  std::string kernel;               // boot id of the kernel: equal for containers on one machine
  std::uint64_t net_namespace = 0;  // equal on one kernel: the same interfaces
  std::string container;            // "docker", "podman", "kubernetes"; empty: none seen

  // The program and its launcher.
  std::string version;
  std::string commit;
  std::string cuda;                        // version that this build was made with
  std::string mpi;                         // such as "Open MPI 4.1.4"
  std::vector<std::string> mpi_libraries;  // files of MPI libraries in this process
  std::string launcher_variable;           // one that implies several processes; empty: none
  int launcher_size = 0;
  std::string launcher_command;    // the right command to start several processes
  bool cluster_named = false;      // TF_CONFIG names a cluster: a world of one is intended
  bool open_mpi_launcher = false;  // Open MPI's variables are set
  bool pmi_launcher = false;       // the variables of MPICH or a batch system are set
  bool yields = false;             // mpi_yield_when_idle is on
  std::string hwloc_override;      // "HWLOC_XMLFILE=..." that replaces the real machine; empty: none

  // The settings: one value for each of setting_rows(), and a sentence for each unknown variable.
  std::vector<std::string> settings;
  std::vector<std::string> setting_warnings;

  // Memory.
  ResourceGrant shared_memory;         // all members of a node at the same time
  bool shared_memory_is_disk = false;  // /dev/shm is on a disk
  ResourceGrant locked_memory;
  std::uint64_t lock_limit_bytes = 0;  // in bytes; the largest value means no limit
  IndexSet unreadable;                 // ranks of the node whose memory cannot be read
  int read_error = 0;                  // errno of the first of them; 0: it was read, but its content was wrong
  int ptrace_scope = -1;               // of the Yama module; -1: not present
  std::string huge_pages;              // "never" for shared memory; empty: the kernel does not say

  // Thresholds of a node's memory: a line for each stored file that fits, and the files without a measurement.
  std::vector<std::string> thresholds;             // "2 processes, 50 to 200 ns apart: measured in 3 jobs; ..."
  std::vector<std::string> unsure_thresholds;      // the lines whose measurements were not believed
  std::vector<std::string> final_threshold_files;  // of those, the files that no job measures for any more

  // Limits and time.
  IndexSet reachable_pus;  // as the system numbers them; the cpuset would allow them
  std::uint64_t open_files = 0;
  std::uint64_t open_files_hard = 0;
  std::string clock_source;
  double clock_ns = 0;             // cost of reading the clock
  std::int64_t wall_clock_ns = 0;  // since 1970, read just after a barrier of all members
  bool rdma = false;               // an adapter that registers memory exists
  double link_mbit_per_s = 0;      // received from another machine; 0: not tried, or nothing arrived (doctor_links.hpp)

  // GPUs, in the order in which this process sees them.
  bool gpu_built = false;
  int gpu_driver = 0;  // 12040 is 12.4; 0: no driver
  int gpu_runtime = 0;
  std::string why_no_gpu;
  std::vector<std::string> gpu_ids;
  std::vector<std::string> gpu_states;  // as in SeenGpu
  std::string nccl;                     // version that is loaded; empty: none
  std::string why_no_nccl;

  bool operator==(const Facts&) const = default;

  Bytes to_bytes() const;
  static Facts from_bytes(std::span<const std::byte> bytes);
};

// Gathers the facts that need no other member. `given` holds the settings of the environment, from which the session's
// may differ.
Facts ask(const Session& session, const Settings& given);

// Adds the facts that must be tried together, and exchanges all. It returns the facts by rank. It takes a second or two
// if memory is slow, and as long as the exchange waits. All members call it.
std::vector<Facts> try_and_gather(Exchange& exchange, const Topology& topology, Facts facts);

}  // namespace lockstep::command
