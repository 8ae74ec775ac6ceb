// SPDX-License-Identifier: Apache-2.0
// The members that are left of a communicator send these messages until they have agreed: values, and their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "topology/base/bytes.hpp"
#include "topology/base/error.hpp"

namespace lockstep::shrinking {

enum class ShrinkStage : std::uint8_t { build, done, failed };

// What all of them get alike.
struct ShrinkDecision {
  ShrinkStage stage = ShrinkStage::failed;
  IndexSet members = {};       // but of failed
  Code code = Code::internal;  // of failed
  std::string why = {};
  bool operator==(const ShrinkDecision&) const = default;
};

enum class BuildState : std::uint8_t { none, built, unlucky, failed };

// How it stands with a member's part of what is built. unlucky: somebody else may be the reason, who is lost.
struct BuildResult {
  BuildState state = BuildState::none;
  Code code = Code::internal;
  std::string why = {};
  bool operator==(const BuildResult&) const = default;
};

// "I am here, have lost these, and so it stands with my part."
struct JoinMessage {
  IndexSet lost = {};
  BuildResult part = {};
  bool operator==(const JoinMessage&) const = default;
};

// "I lead. What have you accepted? Answer when you have seen these end."
struct PrepareMessage {
  std::uint64_t ballot = 0;
  IndexSet ended = {};
  bool operator==(const PrepareMessage&) const = default;
};
struct PromiseMessage {
  std::uint64_t ballot = 0;
  std::uint64_t accepted_in = 0;  // 0: nothing was
  ShrinkDecision accepted = {};
  bool operator==(const PromiseMessage&) const = default;
};
struct ProposeMessage {
  std::uint64_t ballot = 0;
  ShrinkDecision verdict = {};
  bool operator==(const ProposeMessage&) const = default;
};
struct AcceptMessage {
  std::uint64_t ballot = 0;
  bool operator==(const AcceptMessage&) const = default;
};
// "I have promised this one more."
struct RefuseMessage {
  std::uint64_t ballot = 0;
  bool operator==(const RefuseMessage&) const = default;
};
struct DecidedMessage {
  ShrinkDecision verdict = {};
  bool operator==(const DecidedMessage&) const = default;
};

struct ShrinkMessage {
  std::uint32_t turn = 0;
  std::variant<JoinMessage, PrepareMessage, PromiseMessage, ProposeMessage, AcceptMessage, RefuseMessage,
               DecidedMessage>
      word = {};
  bool operator==(const ShrinkMessage&) const = default;
};

Bytes to_bytes(const ShrinkMessage& message);
// Of a communicator of so many. Throws Error bad_message for anything but the bytes of a message.
ShrinkMessage parse_shrink_message(std::span<const std::byte> bytes, int size);

}  // namespace lockstep::shrinking
