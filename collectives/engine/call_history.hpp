// SPDX-License-Identifier: Apache-2.0
// Numbers a member's calls, and keeps a flight record of the last 64. The engine uses it to answer questions about
// calls that have finished, and to find the member that made a different call.
//
// A Core owns it. All members number the collective calls alike, since they make the same calls in the same order.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/engine/communicator_identity.hpp"
#include "collectives/engine/control_message.hpp"
#include "collectives/engine/operation.hpp"
#include "collectives/mix_hash.hpp"
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

// Counts collective calls and point-to-point messages separately, and records the last `length` collective calls in a
// ring. It allocates nothing in the count.
class CallHistory {
 public:
  // Equals status::calls_kept, so that both records hold the same calls.
  static constexpr std::uint64_t length = 64;

  // Begins with no call. `identity` must outlive this object. `generation` makes the call tags differ from those of an
  // earlier transport.
  CallHistory(const CommunicatorIdentity& identity, std::uint32_t generation)
      : identity_(identity), call_hash_(generation) {}

  // Numbers a collective call of that kind, gives it its call tag, and records it. Returns true if the ring had a call
  // of the same plan at this place.
  bool begin(Operation& operation, std::uint64_t kind) {
    operation.number = ++last_started_;
    // The tag covers all calls so far. So data never matches again after a call in which members differed unseen: a
    // call that only sends ends without hearing of the others.
    call_hash_ = mix_hash(mix_hash(call_hash_, kind), operation.number);
    operation.call_tag = fold(call_hash_);
    CallRecord& record = entries_[operation.number % length];
    record.number = operation.number;
    record.finished = false;
    record.origin = operation.call.origin;
    if (record.plan == operation.call.plan) return true;
    record.signature = operation.signature;
    record.plan = operation.call.plan;
    return false;
  }
  // Numbers a point-to-point message. It uses the message's tag as its call tag.
  void begin_message(Operation& operation) {
    operation.number = ++last_message_;
    operation.call_tag = static_cast<std::uint32_t>(operation.plan().spec.root);
  }
  // Counts point-to-point messages that needed no operation. Returns the number of the last message.
  std::uint64_t add_messages(std::uint64_t count) { return last_message_ += count; }
  // Records that a collective call has finished.
  void finish(std::uint64_t number) {
    CallRecord& record = entries_[number % length];
    if (record.number == number) record.finished = true;
    last_finished_ = std::max(last_finished_, number);
  }

  // Returns the numbers of the last collective call started, and of the highest one finished; 0 means none.
  std::uint64_t last_started() const { return last_started_; }
  std::uint64_t last_finished() const { return last_finished_; }

  // Returns a call that is not too long ago, and has started.
  CallDescription describe(std::uint64_t number) const { return description_of(*find(number)); }
  // Returns the last calls, at most that many, the newest first.
  std::vector<CallDescription> describe_last(std::uint64_t most) const;
  // Throws Error mismatch if the peer's call differs from this member's call of that number.
  void compare(int peer, const CallDescription& theirs) const;
  // Returns the answer to a peer's question about a call. `oldest_in_flight` is the number of the oldest call under
  // way.
  AnswerMessage answer(const QueryMessage& question, std::uint64_t oldest_in_flight) const;

 private:
  // Folds 64 bits of a hash into 32.
  static constexpr std::uint32_t fold(std::uint64_t value) { return static_cast<std::uint32_t>(value ^ value >> 32U); }
  // Returns null if the call is too long ago, or has not started.
  const CallRecord* find(std::uint64_t number) const {
    const CallRecord& record = entries_[number % length];
    return number > 0 && record.number == number ? &record : nullptr;
  }
  static CallDescription description_of(const CallRecord& record);

  const CommunicatorIdentity& identity_;
  std::array<CallRecord, length> entries_ = {};
  std::uint64_t last_started_ = 0;
  std::uint64_t last_finished_ = 0;
  std::uint64_t last_message_ = 0;
  // Combines all collective calls so far.
  std::uint64_t call_hash_;
};

}  // namespace lockstep
