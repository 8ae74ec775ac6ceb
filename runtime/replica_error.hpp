// SPDX-License-Identifier: Apache-2.0
// Reports the failure of a replica to the caller of run().
#pragma once

#include <cstdint>
#include <exception>
#include <string>

#include "topology/base/error.hpp"

namespace lockstep {

// Reports an exception of a replica's function: its text, with the replica's name. It is the same on all processes.
class ReplicaError : public Error {
 public:
  ReplicaError(int replica, int of, std::uint64_t run, const std::string& message, std::exception_ptr cause,
               bool can_go_on);
  int replica() const { return replica_; }  // Returns the number in the sync group.
  // Returns the number of the failed run of the strategy, from 1. A process that had ended this run already gets the
  // error in a later one.
  std::uint64_t run() const { return run_; }
  // Returns the exception itself. On other processes it is an Error peer_failed with the exception's text.
  const std::exception_ptr& cause() const { return cause_; }

 private:
  int replica_;
  std::uint64_t run_;
  std::exception_ptr cause_;
};

}  // namespace lockstep
