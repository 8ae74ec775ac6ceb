// SPDX-License-Identifier: Apache-2.0
// Fails a communicator: keeps the first failure, gives up what is under way, and raises the failure in the program.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/engine/communicator_identity.hpp"
#include "collectives/engine/operation_table.hpp"
#include "collectives/engine/runner.hpp"
#include "collectives/engine/status_publisher.hpp"
#include "collectives/engine/transport.hpp"
#include "topology/base/error.hpp"
#include "topology/base/error_report.hpp"
#include "topology/base/log.hpp"

namespace lockstep {

// Holds an error for this member's program, and the same reason for the other members.
struct FailureCause {
  std::exception_ptr error;
  ErrorReport reason;
};

// Returns the cause for an Error.
FailureCause cause_of(const Error& error);
// Returns the cause for the current exception. `during` names the operation that was being advanced; null means
// none. `member` names this one: "rank 3".
FailureCause cause_in_flight(const Operation* during, std::string_view member);

// Ends the calls of a communicator with its first failure. After that it tells each caller of the failure. Any thread
// may call has_failed(), and reason() once that is true.
class FailureHandler {
 public:
  // Names the parts that a failure ends. They must outlive the handler.
  struct Parts {
    Transport& transport;
    Runner& runner;
    OperationTable& operations;
    StatusPublisher& publisher;
  };

  // `identity` and `log` must outlive the handler.
  FailureHandler(const CommunicatorIdentity& identity, const Log& log, Parts parts)
      : identity_(identity), log_(log), parts_(parts) {}
  const Log& log() const { return log_; }

  // Fails the calls under way, gives up their messages, and tells the other members if `tell_others` is true. Does
  // nothing if the communicator has failed before.
  void fail(FailureCause cause, bool tell_others) noexcept;
  // Fails the communicator because this member cannot make a call. The other members are told, since they would wait
  // for that call in vain. The caller throws the error.
  void refuse(const Error& error) noexcept;
  // Fails the communicator because the program left a request or call unfinished: `what` says which, and `how` says how
  // it was left. That is a mistake of the program, unless an exception unwinds the stack: then the exception tells the
  // reason.
  void fail_unfinished(const std::string& what, std::string_view how, std::string_view remedy);

  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  // Returns nothing before the failure.
  const std::optional<ErrorReport>& reason() const { return reason_; }
  // Throws the failure if there is one. The first throw is the error itself; later ones are Error already_failed, which
  // names the communicator.
  void check();
  // Throws the error itself. There must have been a failure.
  [[noreturn]] void raise();
  // Returns true if messages or copies may still use this member's memory. That memory is kept until the process exits.
  bool keeps_memory() const { return keeps_memory_; }

 private:
  const CommunicatorIdentity& identity_;
  const Log& log_;
  Parts parts_;
  std::atomic<bool> has_failed_{false};
  std::optional<ErrorReport> reason_;
  std::exception_ptr error_;
  bool was_raised_ = false;
  bool keeps_memory_ = false;
};

}  // namespace lockstep
