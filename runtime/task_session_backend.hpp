// SPDX-License-Identifier: Apache-2.0
// What a session stands on where the processes are the tasks of a cluster and no ranks of MPI.
#pragma once

#include <memory>
#include <string>

#include "runtime/cluster/cluster_spec.hpp"
#include "topology/base/log.hpp"
#include "topology/base/settings.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

// `me` is one of those that train; `source` is where the cluster is from, for messages. Returns when all of them are
// there. Throws Error usage where this build has no gRPC, or not what LOCKSTEP_TRANSPORT names.
std::shared_ptr<SessionBackend> make_task_session_backend(const ClusterSpec& cluster, const Task& me,
                                                          const std::string& source, const Settings& settings,
                                                          const Log& log);

}  // namespace lockstep
