// SPDX-License-Identifier: Apache-2.0
// Replaces task_session_backend.cpp in builds without gRPC.
#include "runtime/task_session_backend.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

std::shared_ptr<SessionBackend> make_task_session_backend(const ClusterSpec& /*cluster*/, const Task& me,
                                                          const std::string& source, const Settings& /*settings*/,
                                                          const Log& /*log*/) {
  throw Error(Code::usage,
              text("this is ", me.type, ' ', me.index, " of the cluster of ", source,
                   ", whose tasks find each other by gRPC, which this build lacks"),
              "install libgrpc++-dev and build again, or start the processes by mpirun");
}

}  // namespace lockstep
