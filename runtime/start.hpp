// SPDX-License-Identifier: Apache-2.0
// Starts a session for a program under any launcher: as ranks of mpirun, as tasks that TF_CONFIG names, or as one
// process.
#pragma once

#include <memory>

#include "runtime/cluster/resolver.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

// Holds the options of start().
struct StartOptions {
  SessionOptions session = {};
  // Describes the cluster if mpirun has not launched this process. Null reads TF_CONFIG.
  std::shared_ptr<Resolver> cluster_resolver = nullptr;
};

// Makes the session. If an MPI launcher has started several ranks, they are the session's. Otherwise the chief and the
// workers of the cluster are, if there are several: each process calls this. Otherwise the session is this process.
// Tasks connect to the addresses of the cluster, prove that they share one key (LOCKSTEP_KEY_FILE), and are ranks in
// the order of their tasks. The call waits for all tasks, at most LOCKSTEP_TIMEOUT, and then names the missing ones.
Session start(StartOptions options = {});
Session start(int& argc, char**& argv, StartOptions options = {});

}  // namespace lockstep
