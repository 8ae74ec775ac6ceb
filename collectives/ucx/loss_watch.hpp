// SPDX-License-Identifier: Apache-2.0
// Watches for members that are gone, and reports the first one once.
#pragma once

#include <chrono>
#include <optional>
#include <utility>

#include "collectives/engine/transport.hpp"
#include "topology/roster.hpp"

namespace lockstep::ucx {

// Knows the processes of all members. One thread at a time may use it.
class LossWatch {
 public:
  explicit LossWatch(LostMemberLookup lookup) : lookup_(std::move(lookup)) {}

  // Returns the table of processes, which the caller fills.
  Roster& roster() { return roster_; }
  // Throws Error peer_failed if a member is known to be gone.
  void check() const;
  // Asks for a loss, at most once in 16 calls.
  void look();
  // Throws Error peer_failed, once, if a member is gone. Waits first, because its last message may still be on its way,
  // and says more. A member on its host knows how it ended and should report first.
  void report();

 private:
  LostMemberLookup lookup_;
  Roster roster_;
  unsigned turns_ = 0;
  std::optional<LostMember> lost_;
  std::chrono::steady_clock::time_point lost_at_;
  bool has_reported_ = false;
};

}  // namespace lockstep::ucx
