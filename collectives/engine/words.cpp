// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/words.hpp"

#include <algorithm>

#include "topology/base/text.hpp"

namespace lockstep {
namespace {

enum class Kind : std::uint8_t { agree, ask, answer, fail, left, survive };

void put(Writer& to, const CallWord& call) {
  const Signature& s = call.signature;
  to.put(call.number).put(s.collective).put(s.type).put(s.op).put(s.order).put(s.wire).put(s.root).put(s.element_bytes);
  to.put(s.count).put(s.counts_hash).put(call.choice);
  to.put(std::string_view(call.algorithm)).put(std::string_view(call.place));
}

CallWord get_call(Reader& from) {
  CallWord call;
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
  call.choice = from.get<std::uint64_t>();
  call.algorithm = printable(from.get_string());
  call.place = printable(from.get_string(), 200);
  return call;
}

void put(Writer& to, const std::vector<CallWord>& calls) {
  to.put(static_cast<std::uint64_t>(calls.size()));
  for (const CallWord& call : calls) put(to, call);
}

std::vector<CallWord> get_calls(Reader& from) {
  constexpr std::size_t least_size = 61;  // of a call without names
  std::vector<CallWord> calls(from.get_count(least_size));
  std::ranges::generate(calls, [&] { return get_call(from); });
  return calls;
}

void put(Writer& to, const Agree& word) { put(to.put(Kind::agree), word.call); }
void put(Writer& to, const Ask& word) { to.put(Kind::ask).put(word.number); }
void put(Writer& to, const Answer& word) {
  to.put(Kind::answer).put(word.number).put(word.standing).put(word.last_finished).put(word.oldest_in_flight);
  put(to, word.call);
}
void put(Writer& to, const Fail& word) { to.put(Kind::fail).put(word.code).put(std::string_view(word.text)); }
void put(Writer& to, const Left& word) { put(to.put(Kind::left).put(word.last_started), word.last); }

void put(Writer& to, const Survive& word) {
  to.put(Kind::survive).put(std::string_view(word.why)).put(std::span<const std::byte>(word.bytes));
}

Answer get_answer(Reader& from) {
  Answer word;
  word.number = from.get<std::uint64_t>();
  word.standing = from.get_enum(Answer::Standing::forgotten);
  word.last_finished = from.get<std::uint64_t>();
  word.oldest_in_flight = from.get<std::uint64_t>();
  word.call = get_calls(from);
  return word;
}

Fail get_fail(Reader& from) {
  const Code code = read_code(from);
  return {code, printable(from.get_string(), 4000)};
}

Left get_left(Reader& from) {
  Left word;
  word.last_started = from.get<std::uint64_t>();
  word.last = get_calls(from);
  return word;
}

Survive get_survive(Reader& from) {
  Survive word;
  word.why = printable(from.get_string(), 4000);
  word.bytes = from.get_bytes();
  return word;
}

Word get_word(Reader& from) {
  switch (from.get_enum(Kind::survive)) {
    case Kind::agree:
      return Agree{get_call(from)};
    case Kind::ask:
      return Ask{from.get<std::uint64_t>()};
    case Kind::answer:
      return get_answer(from);
    case Kind::fail:
      return get_fail(from);
    case Kind::left:
      return get_left(from);
    case Kind::survive:
      break;
  }
  return get_survive(from);
}

}  // namespace

Bytes to_bytes(const Word& word) {
  Writer writer;
  std::visit([&](const auto& one) { put(writer, one); }, word);
  return writer.take();
}

Word parse_word(std::span<const std::byte> bytes) {
  Reader reader(bytes);
  Word word = get_word(reader);
  reader.expect_done();
  return word;
}

Code read_code(Reader& from) {
  const auto code = from.get<Code>();
  const bool is_known = std::ranges::find(code_entries(), code, &CodeEntry::code) != code_entries().end();
  return is_known ? code : Code::internal;
}

}  // namespace lockstep
