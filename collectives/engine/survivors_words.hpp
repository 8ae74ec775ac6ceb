// SPDX-License-Identifier: Apache-2.0
// What those that are left of a communicator say to each other until they have agreed: values, and their bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>

#include "topology/base/bytes.hpp"
#include "topology/base/error.hpp"

namespace lockstep::survival {

// What all of them get alike.
struct Verdict {
  enum class Kind : std::uint8_t { build, done, failed };
  Kind kind = Kind::failed;
  IndexSet members = {};       // but of failed
  Code code = Code::internal;  // of failed
  std::string why = {};
  bool operator==(const Verdict&) const = default;
};

// How it stands with a member's part of what is built. unlucky: somebody else may be the reason, who is lost.
struct Part {
  enum class State : std::uint8_t { none, built, unlucky, failed };
  State state = State::none;
  Code code = Code::internal;
  std::string why = {};
  bool operator==(const Part&) const = default;
};

// "I am here, have lost these, and so it stands with my part."
struct Join {
  IndexSet lost = {};
  Part part = {};
  bool operator==(const Join&) const = default;
};

// "I lead. What have you accepted? Answer when you have seen these end."
struct Prepare {
  std::uint64_t ballot = 0;
  IndexSet ended = {};
  bool operator==(const Prepare&) const = default;
};
struct Promise {
  std::uint64_t ballot = 0;
  std::uint64_t accepted_in = 0;  // 0: nothing was
  Verdict accepted = {};
  bool operator==(const Promise&) const = default;
};
struct Propose {
  std::uint64_t ballot = 0;
  Verdict verdict = {};
  bool operator==(const Propose&) const = default;
};
struct Accept {
  std::uint64_t ballot = 0;
  bool operator==(const Accept&) const = default;
};
// "I have promised this one more."
struct Refuse {
  std::uint64_t ballot = 0;
  bool operator==(const Refuse&) const = default;
};
struct Decided {
  Verdict verdict = {};
  bool operator==(const Decided&) const = default;
};

struct Message {
  std::uint32_t turn = 0;
  std::variant<Join, Prepare, Promise, Propose, Accept, Refuse, Decided> word = {};
  bool operator==(const Message&) const = default;
};

Bytes to_bytes(const Message& message);
// Of a communicator of so many. Throws Error bad_message for anything but the bytes of a message.
Message parse_message(std::span<const std::byte> bytes, int size);

}  // namespace lockstep::survival
