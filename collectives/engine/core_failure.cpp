// SPDX-License-Identifier: Apache-2.0
// Handles the failure and the end of a communicator.
#include <algorithm>

#include "collectives/engine/core.hpp"
#include "collectives/engine/memory_fault.hpp"
#include "collectives/engine/status_reader.hpp"
#include "topology/base/error.hpp"

namespace lockstep {
namespace {

// Returns the error for a request or call that a member left unfinished. That is a mistake of its program, unless an
// exception unwinds the stack: then the exception tells the reason.
Error left_behind(const std::string& what, std::string_view how, std::string_view mend) {
  if (std::uncaught_exceptions() == 0) return {Code::usage, text(what, how), mend};
  return {Code::peer_failed, text(what, " was given up for another error of that member's"),
          "look at what that member says itself"};
}

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

void Core::drop(const CallTicket& ticket) noexcept {
  guarded([&] {
    Operation& operation = operation_of(ticket);
    if (!failed()) {
      const std::string at = place(operation.call.origin);
      const Error error = left_behind(text("the request of ", describe(operation), " on \"", name_,
                                           at.empty() ? "\"" : text("\", started at ", at, ',')),
                                      " was destroyed before it was waited for", "keep every request, and wait for it");
      if (error.code() == Code::usage) log_.error(error.what());
      fail_with(error);
    }
    release(operation);
  });
  sweep();
}

void Core::refuse(const Error& error) noexcept {
  if (failed()) return;
  fail_with(error);
  told_user_ = true;
  sweep();
}

void Core::leave() noexcept {
  Bytes last_words;
  guarded([&] {
    if (!failed() && !active_.empty()) {
      const Operation& first = *active_.front();
      const Error error =
          left_behind(text("the communicator \"", name_, '"'),
                      text(" was destroyed with ", active_.size(), active_.size() == 1 ? " call" : " calls",
                           " in flight, first ", describe(first), " started at ", place(first.call.origin)),
                      "wait for every request before the communicator ends");
      if (error.code() == Code::usage) log_.error(error.what());
      fail_with(error);
    }
    if (failed()) return;  // the others already know that it failed
    LeaveMessage message{last_started_, {}};
    // Tells the last 4 calls, for members that wait in a different one.
    constexpr std::uint64_t told = 4;
    for (std::uint64_t back = 0; back < std::min(told, last_started_); ++back)
      message.last.push_back(description_of(*call_history_.find(last_started_ - back)));
    last_words = to_bytes(message);
  });
  guarded([&] { transport_.leave(last_words); });
}

void Core::leave_track() noexcept {
  if (!track_) return;
  try {
    track_->write();
  } catch (const std::exception& error) {
    log_.warn(error.what());
  }
}

// Fails this member too. A surviving member tells the reason, since the failed one may have died before it told all.
void Core::hear(int peer, const SurviveMessage& message) {
  of_survivors_.push_back({peer, message.bytes});
  const Error error(Code::peer_failed, text("rank ", peer, " goes on with those that are left: ", message.why),
                    "shrink() as well, or end the program");
  fail(std::make_exception_ptr(error), {error.code(), std::string(error.detail())}, false);
}

std::vector<Transport::SmallMessage> Core::begin_shrinking() {
  refuse(Error(Code::peer_failed, text("rank ", rank_, " makes a smaller communicator of \"", name_, '"'),
               "shrink() on all members"));
  return std::exchange(of_survivors_, {});
}

void Core::check_usable() {
  if (!failed()) return;
  if (!told_user_) {
    told_user_ = true;
    std::rethrow_exception(error_);
  }
  throw Error(Code::poisoned, text("the communicator \"", name_, "\" has failed before: ", failure_->text),
              "use one that was made before, shrink() it where members have died, or begin anew");
}

// Makes the exception in flight the failure.
void Core::fail_now(const Operation* during) noexcept {
  CommunicatorFailure failure;
  bool names_call = false;  // in this member's own error, too
  try {
    throw;
  } catch (const MemoryFault& fault) {
    failure = {fault.code(), owner_of(fault, during, rank_)};
    names_call = true;
  } catch (const Error& error) {
    failure = {error.code(), std::string(error.detail())};
  } catch (const std::bad_alloc&) {
    failure = {Code::out_of_memory, "there was not enough memory"};
  } catch (const std::exception& error) {
    failure = {Code::peer_failed, text("an exception of the user's own: ", error.what())};
  } catch (...) {
    failure = {Code::peer_failed, "an exception of the user's own"};
  }
  if (during != nullptr) {
    const std::string line = place(during->call.origin);
    failure.text = text("in ", describe(*during), line.empty() ? "" : " at ", line, ": ", failure.text);
  }
  if (names_call) return fail_with(Error(failure.code, failure.text));
  fail(std::current_exception(), std::move(failure), true);
}

void Core::fail_with(const Error& error) noexcept {
  fail(std::make_exception_ptr(error), {error.code(), std::string(error.detail())}, true);
}

void Core::fail(std::exception_ptr error, CommunicatorFailure failure, bool tell_others) noexcept {
  if (failed()) return;
  failed_.store(true, std::memory_order_relaxed);
  error_ = std::move(error);
  failure_ = std::move(failure);
  for (Operation* operation : active_) {
    if (operation->state == OperationState::flying) operation->state = OperationState::failed;
  }
  keeps_memory_ = true;  // stays true if giving up throws
  try {
    const bool given_up_in_node = runner_.abandon();
    keeps_memory_ = !transport_.abandon() || !given_up_in_node;
  } catch (const std::exception& second) {
    log_.error(text("while giving up the messages of \"", name_, "\": ", second.what()));
  }
  try {
    if (tell_others) tell_all(FailMessage{failure_->code, failure_->text});
  } catch (const std::exception& second) {
    log_.error(text("while telling the others of \"", name_, "\" of a failure: ", second.what()));
  }
  write_status_file();
}

// Publishes the failure for `lockstep stat`, and in a file if a folder for dumps is set.
void Core::write_status_file() noexcept {
  if (status_ == nullptr) return;
  try {
    status_->failure.write(text(id(failure_->code), ' ', failure_->text));
    status::mark_failed(status_);
    if (const auto folder = status::leave())
      log_.info(text("what the members on this host did last is in ", *folder, " -> lockstep why ", *folder));
  } catch (const std::exception& second) {
    log_.warn(second.what());
  }
}

}  // namespace lockstep
