// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes control messages. Each begins with a byte for its kind. Texts from other processes are cut and
// made printable.
#include "collectives/engine/control_message.hpp"

#include <algorithm>

#include "topology/base/text.hpp"

namespace lockstep {
namespace {

// Gives the first byte of a message.
enum class ControlMessageKind : std::uint8_t { agree, query, answer, fail, left, survive };

void put(Writer& to, const CallDescription& call) {
  const Signature& s = call.signature;
  to.put(call.number).put(s.collective).put(s.type).put(s.op).put(s.order).put(s.wire).put(s.root).put(s.element_bytes);
  to.put(s.count).put(s.counts_hash).put(s.is_ordered).put(s.fingerprints.layout).put(s.fingerprints.function);
  to.put(s.fingerprints.variable).put(s.fingerprints.tag).put(s.fingerprints.merges).put(s.fingerprints.place);
  to.put(call.choice_number);
  to.put(std::string_view(call.algorithm)).put(std::string_view(call.place));
}

CallDescription get_call(Reader& from) {
  CallDescription call;
  Signature& s = call.signature;
  call.number = from.get<std::uint64_t>();
  s.collective = from.get_enum(Collective::allocate);
  s.type = from.get_enum(DataType::opaque);
  s.op = from.get_enum(ReduceOp::user);
  s.order = from.get_enum(Order::reproducible);
  s.wire = from.get_enum(WireFormat::f16);
  s.root = from.get<std::int32_t>();
  s.element_bytes = from.get<std::uint32_t>();
  s.count = from.get<std::uint64_t>();
  s.counts_hash = from.get<std::uint64_t>();
  s.is_ordered = from.get<std::uint8_t>();
  s.fingerprints.layout = from.get<std::uint64_t>();
  s.fingerprints.function = from.get<std::uint64_t>();
  s.fingerprints.variable = from.get<std::uint64_t>();
  s.fingerprints.tag = from.get<std::uint64_t>();
  s.fingerprints.merges = from.get<std::uint64_t>();
  s.fingerprints.place = from.get<std::uint64_t>();
  call.choice_number = from.get<std::uint64_t>();
  call.algorithm = printable(from.get_string());
  call.place = printable(from.get_string(), 200);
  return call;
}

void put(Writer& to, const std::vector<CallDescription>& calls) {
  to.put(static_cast<std::uint64_t>(calls.size()));
  for (const CallDescription& call : calls) put(to, call);
}

std::vector<CallDescription> get_calls(Reader& from) {
  // Bounds the number of calls by the bytes: a call without names takes 110.
  constexpr std::size_t least_size = 110;
  std::vector<CallDescription> calls(from.get_count(least_size));
  std::ranges::generate(calls, [&] { return get_call(from); });
  return calls;
}

void put(Writer& to, const AgreeMessage& message) { put(to.put(ControlMessageKind::agree), message.call); }
void put(Writer& to, const QueryMessage& message) { to.put(ControlMessageKind::query).put(message.number); }
void put(Writer& to, const AnswerMessage& message) {
  to.put(ControlMessageKind::answer)
      .put(message.number)
      .put(message.progress)
      .put(message.last_finished)
      .put(message.oldest_in_flight);
  put(to, message.call);
}
void put(Writer& to, const FailMessage& message) { put(to.put(ControlMessageKind::fail), message.reason); }
void put(Writer& to, const LeaveMessage& message) {
  put(to.put(ControlMessageKind::left).put(message.last_started), message.last);
}

void put(Writer& to, const SurviveMessage& message) {
  to.put(ControlMessageKind::survive).put(std::string_view(message.why)).put(std::span<const std::byte>(message.bytes));
}

AnswerMessage get_answer(Reader& from) {
  AnswerMessage message;
  message.number = from.get<std::uint64_t>();
  message.progress = from.get_enum(CallProgress::forgotten);
  message.last_finished = from.get<std::uint64_t>();
  message.oldest_in_flight = from.get<std::uint64_t>();
  message.call = get_calls(from);
  return message;
}

LeaveMessage get_left(Reader& from) {
  LeaveMessage message;
  message.last_started = from.get<std::uint64_t>();
  message.last = get_calls(from);
  return message;
}

SurviveMessage get_survive(Reader& from) {
  SurviveMessage message;
  message.why = printable(from.get_string(), 4000);
  message.bytes = from.get_bytes();
  return message;
}

ControlMessage get_control_message(Reader& from) {
  switch (from.get_enum(ControlMessageKind::survive)) {
    case ControlMessageKind::agree:
      return AgreeMessage{get_call(from)};
    case ControlMessageKind::query:
      return QueryMessage{from.get<std::uint64_t>()};
    case ControlMessageKind::answer:
      return get_answer(from);
    case ControlMessageKind::fail:
      return FailMessage{get_error_report(from)};
    case ControlMessageKind::left:
      return get_left(from);
    case ControlMessageKind::survive:
      break;
  }
  return get_survive(from);
}

}  // namespace

Bytes to_bytes(const ControlMessage& message) {
  Writer writer;
  std::visit([&](const auto& one) { put(writer, one); }, message);
  return writer.take();
}

ControlMessage parse_control_message(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  ControlMessage message = get_control_message(reader);
  reader.expect_done();
  return message;
}

}  // namespace lockstep
