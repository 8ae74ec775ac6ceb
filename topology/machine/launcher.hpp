// SPDX-License-Identifier: Apache-2.0
// Reads the launcher's variables, as hints and never as truth. They show that many processes were meant where MPI sees
// one, which is the commonest way to lose a day on a new cluster.
#pragma once

#include <optional>
#include <string>

#include "topology/base/environment.hpp"

namespace lockstep {

// Tells that a launcher meant several processes.
struct LauncherHint {
  std::string variable;  // "SLURM_STEP_NUM_TASKS"
  int size = 0;          // the number of processes in it
  std::string command;   // a command that lets this MPI library see them
};

// Returns the first launcher that means more than one process, or nothing.
std::optional<LauncherHint> launcher_hint(const Environment& environment);

// Returns this process's number in the launcher's count, or nothing without a launcher.
std::optional<int> launcher_rank(const Environment& environment);

// True if the launcher leaves the others alone when a process dies: mpirun --enable-recovery.
bool launcher_keeps_survivors(const Environment& environment);

// True if TF_CONFIG names a cluster, so that processes find each other without MPI. Its form is not checked.
bool tf_config_names_cluster(const Environment& environment);

}  // namespace lockstep
