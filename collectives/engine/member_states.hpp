// SPDX-License-Identifier: Apache-2.0
// Records which members of a communicator a member has lost, and says which sets of members may decide.
#pragma once

#include <vector>

#include "collectives/engine/transport.hpp"
#include "topology/base/index_set.hpp"

namespace lockstep::shrinking {

// Holds one member's view of the others. A member's state only gets worse.
class MemberStates {
 public:
  using PeerState = Transport::PeerState;

  // Begins with all members here.
  MemberStates(int rank, int size) : rank_(rank), states_(static_cast<std::size_t>(size)) {}

  int rank() const { return rank_; }
  int size() const { return static_cast<int>(states_.size()); }

  // Returns true if this state of a peer is worse than the known one, and records it.
  bool worsen(int peer, PeerState peer_state) {
    PeerState& known = states_[static_cast<std::size_t>(peer)];
    if (peer_state <= known || peer == rank_) return false;
    known = peer_state;
    return true;
  }

  bool is_lost(int peer) const { return states_[static_cast<std::size_t>(peer)] != PeerState::reachable; }
  bool has_ended(int peer) const { return states_[static_cast<std::size_t>(peer)] == PeerState::ended; }
  // Returns the members that are lost, those of them whose processes have ended, and those that are not lost.
  IndexSet lost() const {
    return select([this](int peer) { return is_lost(peer); });
  }
  IndexSet ended() const {
    return select([this](int peer) { return has_ended(peer); });
  }
  IndexSet reachable() const {
    return select([this](int peer) { return !is_lost(peer); });
  }

  // Returns true if these members may go on without all others. They may if they are more than half of all, or half
  // including rank 0, or if the processes of all others have ended.
  bool may_go_on(const IndexSet& members) const {
    const std::size_t twice = 2 * members.size();
    if (twice > states_.size() || (twice == states_.size() && members.contains(0))) return true;
    return select([&](int peer) { return !members.contains(peer) && !has_ended(peer); }).empty();
  }

 private:
  template <class Predicate>
  IndexSet select(const Predicate& predicate) const {
    IndexSet selected;
    for (int peer = 0; peer < size(); ++peer) {
      if (predicate(peer)) selected.insert(peer);
    }
    return selected;
  }

  int rank_;
  std::vector<PeerState> states_;
};

}  // namespace lockstep::shrinking
