// SPDX-License-Identifier: Apache-2.0
// Records which members have left a communicator, and which calls they made before.
//
// A Core owns it. It learns of departures from LeaveMessages.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "collectives/engine/communicator_identity.hpp"
#include "collectives/engine/operation.hpp"

namespace lockstep {

// Finds calls that can never complete because a member has left.
class DepartedMembers {
 public:
  // `identity` must outlive this object.
  explicit DepartedMembers(const CommunicatorIdentity& identity) : identity_(identity) {}

  // Records that a member has left after the call of that number; 0 means that it made none.
  void add(int peer, std::uint64_t last_started) {
    if (!has_any()) last_calls_.resize(static_cast<std::size_t>(identity_.size));
    last_calls_[static_cast<std::size_t>(peer)] = last_started;
  }
  bool has_any() const { return !last_calls_.empty(); }
  bool has(int peer) const { return has_any() && last_calls_[static_cast<std::size_t>(peer)].has_value(); }
  // Returns for each rank the last call of a member that has left; nothing for a member that has not. Empty if all are
  // there.
  std::span<const std::optional<std::uint64_t>> last_calls() const { return last_calls_; }
  // Throws Error peer_failed if a member left before this collective call.
  void check(const Operation& operation) const;
  // Throws Error peer_failed if the peer of this message has left.
  void check_peer(const Operation& operation, int peer) const;

 private:
  const CommunicatorIdentity& identity_;
  // Takes no memory until a member leaves, since each member of a large communicator has one.
  std::vector<std::optional<std::uint64_t>> last_calls_;
};

}  // namespace lockstep
