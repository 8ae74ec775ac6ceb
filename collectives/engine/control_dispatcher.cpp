// SPDX-License-Identifier: Apache-2.0
// Reacts to the control messages of other members: agreement, questions, answers, failures and departures.
#include "collectives/engine/control_dispatcher.hpp"

namespace lockstep {

bool ControlDispatcher::receive() {
  bool heard = false;
  while (!parts_.failure.has_failed()) {
    const std::optional<Transport::ReceivedControl> next = parts_.transport.receive_control();
    if (!next) break;
    heard = true;
    ControlMessage message;
    try {
      message = parse_control_message(next->bytes);
    } catch (const Error& error) {
      throw Error(Code::bad_message, text("a message from ", identity_.members.name_of(next->peer), " to \"",
                                          identity_.name, "\" cannot be read: ", error.detail()));
    }
    parts_.publisher.notes().heard(next->peer);
    std::visit([&](const auto& one) { handle(next->peer, one); }, message);
  }
  if (!parts_.failure.has_failed()) parts_.stalls.serve_request();
  return heard;
}

void ControlDispatcher::handle(int peer, const AgreeMessage& message) {
  if (message.call.number > parts_.history.last_started()) {
    parts_.agreement.keep(peer, message.call);
    return;
  }
  parts_.history.compare(peer, message.call);
  for (Operation* operation : parts_.operations.active()) {
    if (operation->is_message() || operation->number != message.call.number) continue;
    operation->agreements_missing &= ~parts_.agreement.bit_of(peer);
    parts_.stalls.restart(*operation);
  }
}

void ControlDispatcher::handle(int peer, const QueryMessage& message) {
  parts_.transport.send_control(peer, to_bytes(parts_.history.answer(message, parts_.operations.oldest_collective())));
}

void ControlDispatcher::handle(int peer, const AnswerMessage& message) {
  parts_.stalls.handle(peer, message);
  for (const CallDescription& call : message.call) parts_.history.compare(peer, call);
}

void ControlDispatcher::handle(int peer, const FailMessage& message) {
  const bool names_members = message.reason.code == Code::mismatch;  // the text does
  parts_.failure.fail(cause_of(names_members ? Error(Code::mismatch, message.reason.text)
                                             : Error(Code::peer_failed, text(identity_.members.number_of(peer), ": ",
                                                                             message.reason.text))),
                      false);
}

void ControlDispatcher::handle(int peer, const LeaveMessage& message) {
  parts_.departed.add(peer, message.last_started);
  parts_.publisher.notes().left(peer, message.last_started);
  for (const CallDescription& call : message.last) parts_.history.compare(peer, call);
  for (const Operation* operation : parts_.operations.active()) parts_.departed.check(*operation);
}

// Fails this member too. A surviving member tells the reason, since the failed one may have died before it told all.
void ControlDispatcher::handle(int peer, const SurviveMessage& message) {
  survive_messages_.push_back({peer, message.bytes});
  parts_.failure.fail(
      cause_of(Error(Code::peer_failed,
                     text(identity_.members.number_of(peer), " continues with the survivors: ", message.why),
                     "shrink() as well, or end the program")),
      false);
}

}  // namespace lockstep
