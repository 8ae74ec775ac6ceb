// SPDX-License-Identifier: Apache-2.0
// Reports the failure of a replica to the caller of run().
#pragma once

#include <exception>

#include "topology/base/error.hpp"

namespace lockstep {

// Reports an exception of a replica's function: its text, with the replica's name.
class ReplicaError : public Error {
 public:
  ReplicaError(int replica, int of, std::exception_ptr cause, bool can_go_on);
  int replica() const { return replica_; }                    // Returns the number in the sync group.
  const std::exception_ptr& cause() const { return cause_; }  // Returns the exception itself.

 private:
  int replica_;
  std::exception_ptr cause_;
};

}  // namespace lockstep
