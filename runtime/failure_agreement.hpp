// SPDX-License-Identifier: Apache-2.0
// Lets the processes of a strategy agree on one failure after an exception in a replica.
//
// Each process that notices a failure contributes its own, and gets those of all. No process waits for ever: one that
// has ended its run without noticing contributes when it makes its next call.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "collectives/communicator/communicator.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"

namespace lockstep::detail {

// Describes a failure to the other processes. Causes come before their consequences: `kind` orders them.
struct RunFailure {
  enum class Kind : std::uint8_t { cause, joint, consequence, none };
  Kind kind = Kind::none;    // joint: several replicas have it, as a collective that differs
  std::uint64_t run = 0;     // the number of the run, from 1
  int replica = 0;           // the number in the sync group
  std::string message = {};  // the text of the exception; others get its first 1,906 bytes
};

// Belongs to one process of a strategy. It uses a communicator of the processes, and serves one failure at a time.
class FailureAgreement {
 public:
  // `health` must outlive it.
  explicit FailureAgreement(Communicator& health) : health_(health) {}
  ~FailureAgreement();
  FailureAgreement(const FailureAgreement&) = delete;
  FailureAgreement& operator=(const FailureAgreement&) = delete;

  // Contributes this process's failure, unless it has contributed one to this agreement.
  void contribute(const RunFailure& mine);
  // Waits for the other processes, at most this long. Returns the failure that comes first; nothing if a process has
  // not come. Throws Error if one never will.
  std::optional<RunFailure> wait_for(Duration limit);
  // Waits for the other processes, and ends the agreement. Throws Error if one does not come.
  RunFailure wait();
  // Tells all processes that there will be no agreement.
  void refuse(const Error& why) noexcept;

 private:
  RunFailure first() const;

  Communicator& health_;
  bool is_begun_ = false;
  std::vector<std::uint8_t> mine_;
  std::vector<std::uint8_t> all_;
  Request request_;
};

}  // namespace lockstep::detail
