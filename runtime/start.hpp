// SPDX-License-Identifier: Apache-2.0
// One beginning for a program, whoever launches it: the ranks of mpirun, the tasks that TF_CONFIG names, or one process
// alone.
#pragma once

#include <memory>

#include "runtime/cluster/resolver.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

struct StartOptions {
  SessionOptions session = {};
  // Where the cluster is from where no mpirun has launched this; nothing: from TF_CONFIG.
  std::shared_ptr<Resolver> cluster_resolver = nullptr;
};

// Ranks where a launcher of MPI says that there are several; else the chief and the workers of the cluster, each of
// them a process that calls this, where there are several; else this process. Tasks find each other at the addresses
// of the cluster, prove to each other that they have one key (LOCKSTEP_KEY_FILE), and are ranks in the order of their
// tasks. Waits for all, no longer than LOCKSTEP_TIMEOUT, and then names who is missing.
Session start(StartOptions options = {});
Session start(int& argc, char**& argv, StartOptions options = {});

}  // namespace lockstep
