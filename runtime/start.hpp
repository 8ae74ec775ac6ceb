// SPDX-License-Identifier: Apache-2.0
// Starts a session for a program under any launcher: as ranks of mpirun, as tasks that TF_CONFIG names, or as one
// process.
#pragma once

#include <memory>
#include <utility>

#include "runtime/cluster/resolver.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

// Holds the options of start().
struct StartOptions {
  SessionOptions session = {};
  // Describes the cluster if mpirun has not launched this process. Null reads TF_CONFIG.
  std::shared_ptr<Resolver> cluster_resolver = nullptr;
};

// Is the session of a process that knows its duties. It can be kept as a plain Session.
class TaskSession : public Session {
 public:
  TaskSession(Session session, Role role) : Session(std::move(session)), role_(std::move(role)) {}
  // Returns the duties of this process. A rank of mpirun is a worker, unless TF_CONFIG names its task.
  const Role& role() const { return role_; }

 private:
  Role role_;
};

// Makes the session. If an MPI launcher has started several ranks, they are the session's. Otherwise the chief and the
// workers of the cluster are, if there are several: each process calls this. Otherwise the session is this process, as
// it is for parameter servers and evaluators: `role()` tells one program its part.
// Tasks connect to the addresses of the cluster, prove that they share one key (LOCKSTEP_KEY_FILE), and are ranks in
// the order of their tasks. The call waits for all tasks, at most LOCKSTEP_TIMEOUT, and then names the missing ones.
TaskSession start(StartOptions options = {});
TaskSession start(int& argc, char**& argv, StartOptions options = {});

}  // namespace lockstep
