// SPDX-License-Identifier: Apache-2.0
// Exchanges control messages with other members: agreement, answers, failures and departures.
#include <exception>
#include <utility>

#include "collectives/engine/core.hpp"

namespace lockstep {
namespace {

// Returns the error for a request or call that a member left unfinished. That is a mistake of its program, unless an
// exception unwinds the stack: then the exception tells the reason.
Error left_behind(const std::string& what, std::string_view how, std::string_view mend) {
  if (std::uncaught_exceptions() == 0) return {Code::usage, text(what, how), mend};
  return {Code::peer_failed, text(what, " was cancelled after another error of that rank"),
          "see that rank's own error"};
}

}  // namespace

bool Core::listen() {
  bool heard = false;
  while (!failure_.has_failed()) {
    const std::optional<Transport::SmallMessage> next = transport_.hear();
    if (!next) break;
    heard = true;
    ControlMessage message;
    try {
      message = parse_control_message(next->bytes);
    } catch (const Error& error) {
      throw Error(Code::bad_message, text("a message from ", identity_.members.name_of(next->peer), " to \"",
                                          identity_.name, "\" cannot be read: ", error.detail()));
    }
    publisher_.notes().heard(next->peer);
    std::visit([&](const auto& one) { hear(next->peer, one); }, message);
  }
  if (!failure_.has_failed()) stalls_.serve_request();
  return heard;
}

void Core::hear(int peer, const AgreeMessage& message) {
  if (message.call.number > history_.last_started()) {
    agreement_.keep(peer, message.call);
    return;
  }
  history_.compare(peer, message.call);
  for (Operation* operation : operations_.active()) {
    if (operation->is_exchange() || operation->number != message.call.number) continue;
    operation->agreements_missing &= ~agreement_.bit_of(peer);
    stalls_.restart(*operation);
  }
}

void Core::hear(int peer, const AskMessage& message) {
  transport_.tell(peer, to_bytes(history_.answer(message, operations_.oldest_collective())));
}

void Core::hear(int peer, const AnswerMessage& message) {
  stalls_.hear(peer, message);
  for (const CallDescription& call : message.call) history_.compare(peer, call);
}

void Core::hear(int peer, const FailMessage& message) {
  const bool names_members = message.reason.code == Code::mismatch;  // the text does
  fail(cause_of(names_members ? Error(Code::mismatch, message.reason.text)
                              : Error(Code::peer_failed, text("rank ", peer, ": ", message.reason.text))),
       false);
}

void Core::hear(int peer, const LeaveMessage& message) {
  departed_.add(peer, message.last_started);
  publisher_.notes().left(peer, message.last_started);
  for (const CallDescription& call : message.last) history_.compare(peer, call);
  for (const Operation* operation : operations_.active()) departed_.check(*operation);
}

// Fails this member too. A surviving member tells the reason, since the failed one may have died before it told all.
void Core::hear(int peer, const SurviveMessage& message) {
  survive_messages_.push_back({peer, message.bytes});
  fail(cause_of(Error(Code::peer_failed, text("rank ", peer, " continues with the survivors: ", message.why),
                      "shrink() as well, or end the program")),
       false);
}

void Core::drop(const CallTicket& ticket) noexcept {
  guarded([&] {
    Operation& operation = operation_of(ticket);
    if (!failure_.has_failed()) {
      const std::string at = place(operation.call.origin);
      const Error error = left_behind(text("the request of ", describe(operation), " on \"", identity_.name,
                                           at.empty() ? "\"" : text("\", started at ", at, ',')),
                                      " was destroyed before it was waited for", "keep every request, and wait for it");
      if (error.code() == Code::usage) log_.error(error.what());
      fail(cause_of(error), true);
    }
    operations_.release(operation);
  });
  operations_.sweep();
}

void Core::refuse(const Error& error) noexcept {
  if (failure_.has_failed()) return;
  fail(cause_of(error), true);
  failure_.set_raised();
  operations_.sweep();
}

void Core::leave() noexcept {
  Bytes last_words;
  guarded([&] {
    if (!failure_.has_failed() && !operations_.is_idle()) {
      const std::size_t count = operations_.active().size();
      const Operation& first = *operations_.active().front();
      const Error error =
          left_behind(text("the communicator \"", identity_.name, '"'),
                      text(" was destroyed with ", count, count == 1 ? " call" : " calls", " in flight, first ",
                           describe(first), " started at ", place(first.call.origin)),
                      "wait for every request before the communicator ends");
      if (error.code() == Code::usage) log_.error(error.what());
      fail(cause_of(error), true);
    }
    if (failure_.has_failed()) return;  // the others already know that it failed
    constexpr std::uint64_t told = 4;   // for members that wait in a different call
    last_words = to_bytes(LeaveMessage{history_.last_started(), history_.describe_last(told)});
  });
  guarded([&] { transport_.leave(last_words); });
}

std::vector<Transport::SmallMessage> Core::begin_shrinking() {
  refuse(Error(Code::peer_failed,
               text("rank ", identity_.rank, " makes a smaller communicator of \"", identity_.name, '"'),
               "shrink() on all members"));
  return std::exchange(survive_messages_, {});
}

void Core::fail(FailureCause cause, bool tell_others) noexcept {
  if (failure_.has_failed()) return;
  failure_.set(std::move(cause));
  const ErrorReport& reason = *failure_.reason();
  operations_.fail_active();
  keeps_memory_ = true;  // stays true if giving up throws
  try {
    const bool given_up_in_node = runner_.abandon();
    keeps_memory_ = !transport_.abandon() || !given_up_in_node;
  } catch (const std::exception& second) {
    log_.error(text("while giving up the messages of \"", identity_.name, "\": ", second.what()));
  }
  try {
    if (tell_others) transport_.tell_all(to_bytes(FailMessage{reason}));
  } catch (const std::exception& second) {
    log_.error(text("while telling the others of \"", identity_.name, "\" of a failure: ", second.what()));
  }
  publisher_.fail(reason);
}

}  // namespace lockstep
