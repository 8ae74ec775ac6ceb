// SPDX-License-Identifier: Apache-2.0
// Defines the messages that the surviving members of a communicator send until they agree, and their encoding in bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "topology/base/bytes.hpp"
#include "topology/base/error.hpp"

namespace lockstep::shrinking {

// Gives the kind of a decision: build a communicator, it is done, or the shrinking has failed.
enum class ShrinkStage : std::uint8_t { build, done, failed };

// Holds a decision, which is the same on all members.
struct ShrinkDecision {
  ShrinkStage stage = ShrinkStage::failed;
  // Names the members that go on. It is empty if the stage is `failed`.
  IndexSet members = {};
  // Gives the error if the stage is `failed`, and `why` its text.
  Code code = Code::internal;
  std::string why = {};
  bool operator==(const ShrinkDecision&) const = default;
};

// Tells how a member's build went. `unlucky` means that the loss of another member may be the reason.
enum class BuildState : std::uint8_t { none, built, unlucky, failed };

// Describes the result of a member's build. `why` is empty unless the build went wrong.
struct BuildResult {
  BuildState state = BuildState::none;
  Code code = Code::internal;
  std::string why = {};
  bool operator==(const BuildResult&) const = default;
};

// Says that its sender takes part, which members it has lost, and the result of its build.
struct JoinMessage {
  IndexSet lost = {};
  BuildResult part = {};
  bool operator==(const JoinMessage&) const = default;
};

// Says that its sender leads, and asks for the decision that the receiver has accepted. The receiver answers once it
// has seen these processes end.
struct PrepareMessage {
  std::uint64_t ballot = 0;
  IndexSet ended = {};
  bool operator==(const PrepareMessage&) const = default;
};
// Answers a PrepareMessage. The sender takes part in no lower ballot, and reports the decision that it has accepted.
struct PromiseMessage {
  std::uint64_t ballot = 0;
  // Names the ballot in which `accepted` was accepted; 0 means that no decision was.
  std::uint64_t accepted_in = 0;
  ShrinkDecision accepted = {};
  bool operator==(const PromiseMessage&) const = default;
};
// Proposes a decision in a ballot that enough members have promised.
struct ProposeMessage {
  std::uint64_t ballot = 0;
  ShrinkDecision verdict = {};
  bool operator==(const ProposeMessage&) const = default;
};
// Accepts the proposal of a ballot.
struct AcceptMessage {
  std::uint64_t ballot = 0;
  bool operator==(const AcceptMessage&) const = default;
};
// Refuses a ballot: the sender has already promised this higher one.
struct RefuseMessage {
  std::uint64_t ballot = 0;
  bool operator==(const RefuseMessage&) const = default;
};
// Tells a decision to members that may not know it.
struct DecidedMessage {
  ShrinkDecision verdict = {};
  bool operator==(const DecidedMessage&) const = default;
};

// Holds any message, with the number of its turn, which counts from 1.
struct ShrinkMessage {
  using Content = std::variant<JoinMessage, PrepareMessage, PromiseMessage, ProposeMessage, AcceptMessage,
                               RefuseMessage, DecidedMessage>;
  std::uint32_t turn = 0;
  Content content = {};
  bool operator==(const ShrinkMessage&) const = default;
};

// Encodes a message for a transport.
Bytes to_bytes(const ShrinkMessage& message);
// Decodes a message between members of a communicator of that size. Throws Error bad_message if the bytes are not a
// valid message.
ShrinkMessage parse_shrink_message(std::span<const std::byte> bytes, int size);

}  // namespace lockstep::shrinking
