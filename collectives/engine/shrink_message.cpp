// SPDX-License-Identifier: Apache-2.0
// Encodes and decodes the messages of the consensus. Ranks are checked against the size of the communicator.
#include "collectives/engine/shrink_message.hpp"

#include <utility>

#include "topology/base/error_report.hpp"
#include "topology/base/text.hpp"

namespace lockstep::shrinking {
namespace {

// The kind of a message is its index in the variant.
constexpr std::uint8_t last_kind = std::variant_size_v<ShrinkMessage::Content> - 1;

// Writes each kind of message.
struct ShrinkMessageWriter {
  Writer& to;

  void verdict(const ShrinkDecision& one) const { put(to.put(one.stage).put(one.members), {one.code, one.why}); }
  void operator()(const JoinMessage& word) const {
    put(to.put(word.lost).put(word.part.state), {word.part.code, word.part.why});
  }
  void operator()(const PrepareMessage& word) const { to.put(word.ballot).put(word.ended); }
  void operator()(const PromiseMessage& word) const {
    to.put(word.ballot).put(word.accepted_in);
    verdict(word.accepted);
  }
  void operator()(const ProposeMessage& word) const {
    to.put(word.ballot);
    verdict(word.verdict);
  }
  void operator()(const AcceptMessage& word) const { to.put(word.ballot); }
  void operator()(const RefuseMessage& word) const { to.put(word.ballot); }
  void operator()(const DecidedMessage& word) const { verdict(word.verdict); }
};

// Reads each kind of message, and trusts no value.
struct ShrinkMessageReader {
  Reader& from;
  int size;

  IndexSet ranks() const {
    IndexSet all = from.get_set();
    if (!all.empty() && all.ranges().back().last >= size)
      throw Error(Code::bad_message, text("rank ", all.ranges().back().last, " among ", size, " members"));
    return all;
  }
  ShrinkDecision verdict() const {
    ShrinkDecision one;
    one.stage = from.get_enum(ShrinkStage::failed);
    one.members = ranks();
    ErrorReport error = get_error_report(from);
    one.code = error.code;
    one.why = std::move(error.text);
    return one;
  }
  JoinMessage join() const {
    JoinMessage word;
    word.lost = ranks();
    word.part.state = from.get_enum(BuildState::failed);
    ErrorReport error = get_error_report(from);
    word.part.code = error.code;
    word.part.why = std::move(error.text);
    return word;
  }
  PrepareMessage prepare() const {
    PrepareMessage word;
    word.ballot = from.get<std::uint64_t>();
    word.ended = ranks();
    return word;
  }
  PromiseMessage promise() const {
    PromiseMessage word;
    word.ballot = from.get<std::uint64_t>();
    word.accepted_in = from.get<std::uint64_t>();
    word.accepted = verdict();
    return word;
  }
  ProposeMessage propose() const {
    ProposeMessage word;
    word.ballot = from.get<std::uint64_t>();
    word.verdict = verdict();
    return word;
  }
};

}  // namespace

Bytes to_bytes(const ShrinkMessage& message) {
  Writer writer;
  writer.put(message.turn).put(static_cast<std::uint8_t>(message.content.index()));
  std::visit(ShrinkMessageWriter{writer}, message.content);
  return writer.take();
}

ShrinkMessage parse_shrink_message(std::span<const std::byte> bytes, int size) {
  Reader reader(bytes);
  const ShrinkMessageReader getting{reader, size};
  ShrinkMessage message;
  message.turn = reader.get<std::uint32_t>();
  switch (const auto kind = reader.get<std::uint8_t>()) {
    case 0:
      message.content = getting.join();
      break;
    case 1:
      message.content = getting.prepare();
      break;
    case 2:
      message.content = getting.promise();
      break;
    case 3:
      message.content = getting.propose();
      break;
    case 4:
      message.content = AcceptMessage{reader.get<std::uint64_t>()};
      break;
    case 5:
      message.content = RefuseMessage{reader.get<std::uint64_t>()};
      break;
    case last_kind:
      message.content = DecidedMessage{getting.verdict()};
      break;
    default:
      throw Error(Code::bad_message, text("a consensus message of kind ", static_cast<int>(kind)));
  }
  reader.expect_done();
  return message;
}

}  // namespace lockstep::shrinking
