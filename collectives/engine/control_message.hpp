// SPDX-License-Identifier: Apache-2.0
// Engines send each other these control messages beside the data: values, and their bytes. Reading trusts nothing.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "collectives/plan.hpp"
#include "topology/base/bytes.hpp"
#include "topology/base/error.hpp"

namespace lockstep {

// A call as its member sees it.
struct CallDescription {
  std::uint64_t number = 0;
  Signature signature = {};
  std::uint64_t choice = 0;
  std::string algorithm;
  std::string place;  // "train.cpp:40"
  bool operator==(const CallDescription&) const = default;
};

// "I am in this call for the first time: you too?"
struct AgreeMessage {
  CallDescription call;
  bool operator==(const AgreeMessage&) const = default;
};

// "Where do you stand with this call?" 0: just where do you stand.
struct AskMessage {
  std::uint64_t number = 0;
  bool operator==(const AskMessage&) const = default;
};

enum class CallProgress : std::uint8_t { not_started, in_it, finished, forgotten };

struct AnswerMessage {
  std::uint64_t number = 0;
  CallProgress progress = CallProgress::not_started;
  std::uint64_t last_finished = 0;
  std::uint64_t oldest_in_flight = 0;  // 0: in none
  std::vector<CallDescription> call;   // the one asked after, if it is known, and those before it
  bool operator==(const AnswerMessage&) const = default;
};

// "I failed; give up."
struct FailMessage {
  Code code = Code::internal;
  std::string text;
  bool operator==(const FailMessage&) const = default;
};

// "I leave; these were my last calls."
struct LeaveMessage {
  std::uint64_t last_started = 0;
  std::vector<CallDescription> last;
  bool operator==(const LeaveMessage&) const = default;
};

// "I go on with those that are left, because of this": and a part of agreeing on who that is.
struct SurviveMessage {
  std::string why;
  Bytes bytes;
  bool operator==(const SurviveMessage&) const = default;
};

using ControlMessage = std::variant<AgreeMessage, AskMessage, AnswerMessage, FailMessage, LeaveMessage, SurviveMessage>;

Bytes to_bytes(const ControlMessage& message);
// Throws Error bad_message for bytes that are no control message.
ControlMessage parse_control_message(std::span<const std::byte> bytes);

// Of an error that another member tells; one that this build does not know is internal.
Code read_code(Reader& from);

}  // namespace lockstep
