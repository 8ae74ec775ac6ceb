// SPDX-License-Identifier: Apache-2.0
// What the launcher's variables say, as hints and never as truth: they show that many processes were
// meant where MPI sees one, which is the commonest way to lose a day on a new cluster.
#pragma once

#include <optional>
#include <string>

#include "topology/base/environment.hpp"

namespace lockstep {

struct LauncherHint {
  std::string variable;  // "SLURM_STEP_NUM_TASKS"
  int size = 0;          // what it says
  std::string command;   // what to type so that this MPI library sees it
};

// The first launcher that means more than one process; nothing when none does.
std::optional<LauncherHint> launcher_hint(const Environment& environment);

// This process's number by the launcher's account; nothing when there is no launcher.
std::optional<int> launcher_rank(const Environment& environment);

// Whether the launcher leaves the others alone when a process dies: mpirun --enable-recovery.
bool launcher_keeps_survivors(const Environment& environment);

// TF_CONFIG names a cluster, so that processes find each other without MPI.
bool tf_config_names_cluster(const Environment& environment);

}  // namespace lockstep
