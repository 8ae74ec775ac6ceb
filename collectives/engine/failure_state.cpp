// SPDX-License-Identifier: Apache-2.0
// Words the failures of a communicator.
#include "collectives/engine/failure_state.hpp"

#include <new>
#include <utility>

#include "collectives/engine/memory_fault.hpp"

namespace lockstep {
namespace {

// Returns true if the address is in that memory.
bool is_in(const void* at, const void* begin, std::size_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(at);
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  return address >= first && address - first < bytes;
}

// Returns the error text for memory that cannot be used: its owner, and its role in the call.
std::string owner_of(const MemoryFault& fault, const Operation* during, int rank) {
  std::string_view buffer = "memory";
  if (during != nullptr) {
    const Plan& plan = during->plan();
    if (is_in(fault.at(), during->call.input, plan.input_count * plan.spec.element_bytes)) buffer = "input";
    if (is_in(fault.at(), during->call.output, plan.output_count * plan.spec.element_bytes)) buffer = "output";
  }
  const bool is_read = fault.access() == Access::read;
  return text("the ", buffer, " of rank ", rank, " cannot be ", is_read ? "read" : "written", ": ", fault.bytes(),
              " bytes at ", MemoryFault::address(fault.at()), " -> give memory that is mapped ",
              is_read ? "" : "for writing ", "until the call ends");
}

}  // namespace

FailureCause cause_of(const Error& error) { return {std::make_exception_ptr(error), report_of(error)}; }

FailureCause cause_in_flight(const Operation* during, int rank) {
  ErrorReport reason;
  bool names_call = false;  // in this member's own error, too
  try {
    throw;
  } catch (const MemoryFault& fault) {
    reason = {fault.code(), owner_of(fault, during, rank)};
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

void FailureState::check(std::string_view name) {
  if (!has_failed()) return;
  if (!was_raised_) raise();
  throw Error(Code::poisoned, text("the communicator \"", name, "\" has failed before: ", reason_->text),
              "use an older communicator, shrink() this one if members have died, or make a new one");
}

void FailureState::raise() {
  was_raised_ = true;
  std::rethrow_exception(error_);
}

}  // namespace lockstep
