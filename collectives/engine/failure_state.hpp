// SPDX-License-Identifier: Apache-2.0
// Holds the first failure of a communicator, and raises it in the program.
//
// A Core owns it. Only the first failure counts: it is sent to the other members once, and every later call throws it.
#pragma once

#include <atomic>
#include <exception>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/engine/operation.hpp"
#include "topology/base/error_report.hpp"

namespace lockstep {

// Holds an error for this member's program, and the same reason for the other members.
struct FailureCause {
  std::exception_ptr error;
  ErrorReport reason;
};

// Returns the cause for an Error.
FailureCause cause_of(const Error& error);
// Returns the cause for the current exception. `during` names the operation that was being advanced; null means
// none. `rank` is this member's.
FailureCause cause_in_flight(const Operation* during, int rank);

// Keeps the first failure. Any thread may call has_failed(), and reason() once that is true.
class FailureState {
 public:
  // Records a failure. Must not be called twice.
  void set(FailureCause cause) noexcept {
    error_ = std::move(cause.error);
    reason_ = std::move(cause.reason);
    has_failed_.store(true, std::memory_order_release);
  }
  bool has_failed() const { return has_failed_.load(std::memory_order_acquire); }
  // Returns nothing before the failure.
  const std::optional<ErrorReport>& reason() const { return reason_; }
  // Throws the failure if there is one. The first throw is the error itself; later ones are Error poisoned, which names
  // the communicator.
  void check(std::string_view name);
  // Throws the error itself. There must have been a failure.
  [[noreturn]] void raise();
  // Records that the program has seen the error.
  void set_raised() { was_raised_ = true; }

 private:
  std::atomic<bool> has_failed_{false};
  std::optional<ErrorReport> reason_;
  std::exception_ptr error_;
  bool was_raised_ = false;
};

}  // namespace lockstep
