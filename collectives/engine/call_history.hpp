// SPDX-License-Identifier: Apache-2.0
// The flight record: what the last calls of a member were, by their number. It answers those who ask after a call
// that is already over, and finds out who made another one.
#pragma once

#include <array>
#include <cstdint>

#include "collectives/node/call.hpp"

namespace lockstep {

struct CallRecord {
  std::uint64_t number = 0;  // of the call, from 1; none is 0
  Signature signature = {};
  std::uint64_t choice = 0;
  Origin origin = {};
  std::shared_ptr<const Plan> plan = {};
  bool finished = false;
};

class CallHistory {
 public:
  static constexpr std::uint64_t length = 64;

  CallRecord& add(std::uint64_t number) {
    CallRecord& entry = entries_[number % length];
    entry.number = number;
    entry.finished = false;
    return entry;
  }
  // Nothing where it is too long ago, or not yet.
  const CallRecord* find(std::uint64_t number) const {
    const CallRecord& entry = entries_[number % length];
    return number > 0 && entry.number == number ? &entry : nullptr;
  }
  void finish(std::uint64_t number) {
    CallRecord& entry = entries_[number % length];
    if (entry.number == number) entry.finished = true;
  }

 private:
  std::array<CallRecord, length> entries_ = {};
};

}  // namespace lockstep
