// SPDX-License-Identifier: Apache-2.0
// Makes the base of a session for processes that are tasks of a cluster instead of MPI ranks.
#pragma once

#include <memory>
#include <string>

#include "runtime/cluster/cluster_spec.hpp"
#include "topology/base/log.hpp"
#include "topology/base/settings.hpp"
#include "topology/machine/session.hpp"

namespace lockstep {

// Returns the backend when all training tasks have arrived. `me` is one of them; `source` names the origin of the
// cluster in messages. Throws Error usage if this build has no gRPC, or lacks the transport of LOCKSTEP_TRANSPORT.
std::shared_ptr<SessionBackend> make_task_session_backend(const ClusterSpec& cluster, const Task& me,
                                                          const std::string& source, const Settings& settings,
                                                          const Log& log);

}  // namespace lockstep
