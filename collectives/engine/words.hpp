// SPDX-License-Identifier: Apache-2.0
// What engines tell each other beside the data: values, and their bytes. Reading trusts nothing.
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
struct CallWord {
  std::uint64_t number = 0;
  Signature signature = {};
  std::uint64_t choice = 0;
  std::string algorithm;
  std::string place;  // "train.cpp:40"
  bool operator==(const CallWord&) const = default;
};

// "I am in this call for the first time: you too?"
struct Agree {
  CallWord call;
  bool operator==(const Agree&) const = default;
};

// "Where do you stand with this call?" 0: just where do you stand.
struct Ask {
  std::uint64_t number = 0;
  bool operator==(const Ask&) const = default;
};

struct Answer {
  enum class Standing : std::uint8_t { not_started, in_it, finished, forgotten };
  std::uint64_t number = 0;
  Standing standing = Standing::not_started;
  std::uint64_t last_finished = 0;
  std::uint64_t oldest_in_flight = 0;  // 0: in none
  std::vector<CallWord> call;          // the one asked after, if it is known, and those before it
  bool operator==(const Answer&) const = default;
};

// "I failed; give up."
struct Fail {
  Code code = Code::internal;
  std::string text;
  bool operator==(const Fail&) const = default;
};

// "I leave; these were my last calls."
struct Left {
  std::uint64_t last_started = 0;
  std::vector<CallWord> last;
  bool operator==(const Left&) const = default;
};

// "I go on with those that are left, because of this": and a part of agreeing on who that is.
struct Survive {
  std::string why;
  Bytes bytes;
  bool operator==(const Survive&) const = default;
};

using Word = std::variant<Agree, Ask, Answer, Fail, Left, Survive>;

Bytes to_bytes(const Word& word);
// Throws Error bad_message for anything but the bytes of a word.
Word parse_word(std::span<const std::byte> bytes);

// Of an error that another member tells; one that this build does not know is internal.
Code read_code(Reader& from);

}  // namespace lockstep
