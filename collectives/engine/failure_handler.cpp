// SPDX-License-Identifier: Apache-2.0
// Words failures, and ends what they hit.
#include "collectives/engine/failure_handler.hpp"

#include <new>
#include <utility>

#include "collectives/engine/memory_fault.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep {
namespace {

// Returns true if the address is in that memory.
bool is_in(const void* at, const void* begin, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  return address >= first && address - first < bytes;
}

// Returns the error text for memory that cannot be used: its owner, and its role in the call.
std::string owner_of(const MemoryFault& fault, const Operation* during, std::string_view member) {
  std::string_view buffer = "memory";
  if (during != nullptr) {
    const Plan& plan = during->plan();
    if (is_in(fault.at(), during->call.input, plan.input_count * plan.spec.element_bytes)) buffer = "input";
    if (is_in(fault.at(), during->call.output, plan.output_count * plan.spec.element_bytes)) buffer = "output";
  }
  const bool is_read = fault.access() == Access::read;
  return text("the ", buffer, " of ", member, " cannot be ", is_read ? "read" : "written", ": ", fault.bytes(),
              " bytes at ", MemoryFault::address(fault.at()), " -> give memory that is mapped ",
              is_read ? "" : "for writing ", "until the call ends");
}

}  // namespace

FailureCause cause_of(const Error& error) { return {std::make_exception_ptr(error), report_of(error)}; }

FailureCause cause_in_flight(const Operation* during, std::string_view member) {
  ErrorReport reason;
  bool names_call = false;  // in this member's own error, too
  try {
    throw;
  } catch (const MemoryFault& fault) {
    reason = {fault.code(), owner_of(fault, during, member)};
    names_call = true;
  } catch (const Error& error) {
    reason = report_of(error);
  } catch (const std::bad_alloc&) {
    reason = {Code::out_of_memory, "there was not enough memory"};
  } catch (const std::exception& error) {
    reason = {Code::peer_failed, text("an exception of the user's own: ", error.what())};
  } catch (...) {
    reason = {Code::peer_failed, "an exception of the user's own"};
  }
  if (during != nullptr) {
    const std::string line = place(during->call.origin);
    reason.text = text("in ", describe(*during), line.empty() ? "" : " at ", line, ": ", reason.text);
  }
  if (names_call) return cause_of(Error(reason.code, reason.text));
  return {std::current_exception(), std::move(reason)};
}

void FailureHandler::fail(FailureCause cause, bool tell_others) noexcept {
  if (has_failed()) return;
  error_ = std::move(cause.error);
  reason_ = std::move(cause.reason);
  has_failed_.store(true, std::memory_order_release);
  if (reason_->code == Code::peer_failed) stop_outside_progress();  // no MPI after a death
  parts_.operations.fail_active();
  keeps_memory_ = true;  // stays true if giving up throws
  try {
    const bool given_up_in_node = parts_.runner.abandon();
    keeps_memory_ = !parts_.transport.abandon() || !given_up_in_node;
  } catch (const std::exception& second) {
    log_.error(text("while giving up the messages of \"", identity_.name, "\": ", second.what()));
  }
  try {
    if (tell_others) parts_.transport.send_control_to_all(to_bytes(FailMessage{*reason_}));
  } catch (const std::exception& second) {
    log_.error(text("while telling the others of \"", identity_.name, "\" of a failure: ", second.what()));
  }
  parts_.publisher.fail(*reason_);
}

void FailureHandler::refuse(const Error& error) noexcept {
  if (has_failed()) return;
  fail(cause_of(error), true);
  was_raised_ = true;
  parts_.operations.sweep();
}

void FailureHandler::fail_unfinished(const std::string& what, std::string_view how, std::string_view remedy) {
  const bool is_mistake = std::uncaught_exceptions() == 0;
  const Error error = is_mistake
                          ? Error(Code::usage, text(what, how), remedy)
                          : Error(Code::peer_failed, text(what, " was cancelled after another error of that rank"),
                                  "see that rank's own error");
  if (is_mistake) log_.error(error.what());
  fail(cause_of(error), true);
}

void FailureHandler::check() {
  if (!has_failed()) return;
  if (!was_raised_) raise();
  throw Error(Code::already_failed,
              text("the communicator \"", identity_.name, "\" has failed before: ", reason_->text),
              "use an older communicator, shrink() this one if members have died, or make a new one");
}

void FailureHandler::raise() {
  was_raised_ = true;
  std::rethrow_exception(error_);
}

}  // namespace lockstep
