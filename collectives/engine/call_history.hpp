// SPDX-License-Identifier: Apache-2.0
// Keeps a flight record of a member's last 64 calls, by number. The engine uses it to answer questions about calls that
// have finished, and to find the member that made a different call.
#pragma once

#include <array>
#include <cstdint>

#include "collectives/node/call.hpp"

namespace lockstep {

// Describes one call. `origin` is the line of the program that made the call.
struct CallRecord {
  // Counts the communicator's calls from 1. 0 marks an unused entry.
  std::uint64_t number = 0;
  Signature signature = {};
  Origin origin = {};
  std::shared_ptr<const Plan> plan = {};
  bool finished = false;
};

// Keeps the last `length` calls in a ring. It allocates nothing.
class CallHistory {
 public:
  // Equals status::calls_kept, so that both records hold the same calls.
  static constexpr std::uint64_t length = 64;

  // Returns the entry for a new call, which replaces the call `length` numbers before. The caller fills in the rest;
  // the entry still holds that earlier call's values.
  CallRecord& add(std::uint64_t number) {
    CallRecord& entry = entries_[number % length];
    entry.number = number;
    entry.finished = false;
    return entry;
  }
  // Returns null if the call is too long ago, or has not started.
  const CallRecord* find(std::uint64_t number) const {
    const CallRecord& entry = entries_[number % length];
    return number > 0 && entry.number == number ? &entry : nullptr;
  }
  // Marks the call as finished. Does nothing if the call is no longer kept.
  void finish(std::uint64_t number) {
    CallRecord& entry = entries_[number % length];
    if (entry.number == number) entry.finished = true;
  }

 private:
  std::array<CallRecord, length> entries_ = {};
};

}  // namespace lockstep
