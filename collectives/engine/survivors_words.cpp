// SPDX-License-Identifier: Apache-2.0
#include "collectives/engine/survivors_words.hpp"

#include "collectives/engine/words.hpp"
#include "topology/base/text.hpp"

namespace lockstep::survival {
namespace {

// Which word it is, is its place in the variant.
constexpr std::uint8_t last_kind = std::variant_size_v<decltype(Message::word)> - 1;
constexpr std::size_t longest_reason = 4000;

struct Putting {
  Writer& to;

  void verdict(const Verdict& one) const {
    to.put(one.kind).put(one.members).put(one.code).put(std::string_view(one.why));
  }
  void operator()(const Join& word) const {
    to.put(word.lost).put(word.part.state).put(word.part.code).put(std::string_view(word.part.why));
  }
  void operator()(const Prepare& word) const { to.put(word.ballot).put(word.ended); }
  void operator()(const Promise& word) const {
    to.put(word.ballot).put(word.accepted_in);
    verdict(word.accepted);
  }
  void operator()(const Propose& word) const {
    to.put(word.ballot);
    verdict(word.verdict);
  }
  void operator()(const Accept& word) const { to.put(word.ballot); }
  void operator()(const Refuse& word) const { to.put(word.ballot); }
  void operator()(const Decided& word) const { verdict(word.verdict); }
};

struct Getting {
  Reader& from;
  int size;

  IndexSet ranks() const {
    IndexSet all = from.get_set();
    if (!all.empty() && all.ranges().back().last >= size)
      throw Error(Code::bad_message, text("rank ", all.ranges().back().last, " among ", size, " members"));
    return all;
  }
  std::string why() const { return printable(from.get_string(), longest_reason); }
  Verdict verdict() const {
    Verdict one;
    one.kind = from.get_enum(Verdict::Kind::failed);
    one.members = ranks();
    one.code = read_code(from);
    one.why = why();
    return one;
  }
  Join join() const {
    Join word;
    word.lost = ranks();
    word.part.state = from.get_enum(Part::State::failed);
    word.part.code = read_code(from);
    word.part.why = why();
    return word;
  }
  Prepare prepare() const {
    Prepare word;
    word.ballot = from.get<std::uint64_t>();
    word.ended = ranks();
    return word;
  }
  Promise promise() const {
    Promise word;
    word.ballot = from.get<std::uint64_t>();
    word.accepted_in = from.get<std::uint64_t>();
    word.accepted = verdict();
    return word;
  }
  Propose propose() const {
    Propose word;
    word.ballot = from.get<std::uint64_t>();
    word.verdict = verdict();
    return word;
  }
};

}  // namespace

Bytes to_bytes(const Message& message) {
  Writer writer;
  writer.put(message.turn).put(static_cast<std::uint8_t>(message.word.index()));
  std::visit(Putting{writer}, message.word);
  return writer.take();
}

Message parse_message(std::span<const std::byte> bytes, int size) {
  Reader reader(bytes);
  const Getting getting{reader, size};
  Message message;
  message.turn = reader.get<std::uint32_t>();
  switch (const auto kind = reader.get<std::uint8_t>()) {
    case 0:
      message.word = getting.join();
      break;
    case 1:
      message.word = getting.prepare();
      break;
    case 2:
      message.word = getting.promise();
      break;
    case 3:
      message.word = getting.propose();
      break;
    case 4:
      message.word = Accept{reader.get<std::uint64_t>()};
      break;
    case 5:
      message.word = Refuse{reader.get<std::uint64_t>()};
      break;
    case last_kind:
      message.word = Decided{getting.verdict()};
      break;
    default:
      throw Error(Code::bad_message, text("a word of survivors of kind ", static_cast<int>(kind)));
  }
  reader.expect_done();
  return message;
}

}  // namespace lockstep::survival
