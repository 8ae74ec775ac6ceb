// SPDX-License-Identifier: Apache-2.0
// Defines the control messages that engines send each other beside the data, and their encoding in bytes. Parsing
// trusts no byte: it checks every value.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "collectives/plan.hpp"
#include "topology/base/bytes.hpp"
#include "topology/base/error_report.hpp"

namespace lockstep {

// Describes a call as the member that made it sees it. `choice_number` is Plan::choice_number().
struct CallDescription {
  std::uint64_t number = 0;
  Signature signature = {};
  std::uint64_t choice_number = 0;
  std::string algorithm;
  // Names the program's line.
  std::string place;  // such as "train.cpp:40"
  bool operator==(const CallDescription&) const = default;
};

// Says that its sender makes this kind of call for the first time, so that the receiver compares it with its own call.
struct AgreeMessage {
  CallDescription call;
  bool operator==(const AgreeMessage&) const = default;
};

// Asks how far the receiver is with a call. Number 0 asks for its state without naming a call.
struct QueryMessage {
  std::uint64_t number = 0;
  bool operator==(const QueryMessage&) const = default;
};

// Says how far a member is with the call that it was asked about. `forgotten` means that its history no longer has it.
enum class CallProgress : std::uint8_t { not_started, in_progress, finished, forgotten };

// Answers a QueryMessage, and repeats its number.
struct AnswerMessage {
  std::uint64_t number = 0;
  CallProgress progress = CallProgress::not_started;
  std::uint64_t last_finished = 0;
  // Names the sender's oldest call under way. 0 means that it is in no call.
  std::uint64_t oldest_in_flight = 0;
  // Lists the call that was asked about, if the sender knows it, then the calls before it.
  std::vector<CallDescription> call;
  bool operator==(const AnswerMessage&) const = default;
};

// Says that the communicator failed for the sender, so that the receiver gives up too.
struct FailMessage {
  ErrorReport reason;
  bool operator==(const FailMessage&) const = default;
};

// Says that its sender closes the communicator, and describes its last calls.
struct LeaveMessage {
  std::uint64_t last_started = 0;
  std::vector<CallDescription> last;
  bool operator==(const LeaveMessage&) const = default;
};

// Says that its sender continues with the surviving members, and why. The bytes are a message of their consensus
// (shrink_message.hpp).
struct SurviveMessage {
  std::string why;
  Bytes bytes;
  bool operator==(const SurviveMessage&) const = default;
};

// Holds any control message.
using ControlMessage =
    std::variant<AgreeMessage, QueryMessage, AnswerMessage, FailMessage, LeaveMessage, SurviveMessage>;

// Encodes a message for a transport.
Bytes to_bytes(const ControlMessage& message);
// Decodes a message. Throws Error bad_message if the bytes are not a control message.
ControlMessage parse_control_message(std::span<const std::byte> bytes);

}  // namespace lockstep
