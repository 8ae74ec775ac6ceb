// SPDX-License-Identifier: Apache-2.0
// Finds out which ranks are gone, and why. A connection ends if its process ends, or if something between the hosts
// cuts it. To tell them apart, this connects to the port of the process: the kernel of an ended process refuses.
//
// A TcpTransport owns it. An error is held back for a moment, because the peer's own message with the reason may still
// arrive.
#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "collectives/engine/transport.hpp"
#include "collectives/tcp/tcp_members.hpp"
#include "collectives/tcp/tcp_shared.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep::tcp {

// Knows for each peer whether it is there, has left, or is lost, and reports the first loss.
class PeerFailures {
 public:
  // Both references must stay. `lookup` tells which member the launcher knows to be gone.
  PeerFailures(Tcp::Shared& shared, const TcpMembers& members, LostMemberLookup lookup);

  // Remembers that a peer has said farewell, so its silence is no failure.
  void set_left(int peer) { peers_[peer].has_left = true; }
  bool has_left(int peer) const;
  // True if it has neither left nor been lost, as far as is known.
  bool is_here(int peer) const;
  // Returns the state of a peer; tries to find it out if its control connection has ended.
  Transport::PeerState peer_state(int peer);

  // Records a loss with its cause. `is_cut` means that only the end of the connection is known.
  void lose(int peer, std::string_view cause, int error, bool is_cut = false);
  // Records that nothing has come from the host of a peer that is here for this time. Logs it, and counts the peer as
  // lost at the limit.
  void note_silence(int peer, std::chrono::milliseconds unanswered);
  // Returns the time for which a host may be silent.
  std::chrono::milliseconds max_silence() const { return shared_.silence; }
  // Returns the sentence about a host from which nothing has come.
  std::string silence_of_host(int error) const;

  // Asks the lookup at every 16th call.
  void ask_lookup();
  // Throws Error peer_failed once, a little after a loss.
  void report_loss();
  bool has_loss() const { return loss_.has_value(); }

 private:
  using Clock = std::chrono::steady_clock;
  // Checks a peer after its control connection has ended. Its process has ended, too, unless something between the
  // hosts cut the connection.
  struct SilenceCheck {
    Clock::time_point since;
    Clock::time_point checked_at;
    Descriptor probe;  // a connection attempt to its port
  };
  struct PeerStatus {
    bool has_left = false;
    bool is_silent = false;  // its host is silent, but not for too long yet
    Transport::PeerState peer_state = Transport::PeerState::reachable;
    std::optional<SilenceCheck> silence;  // set while its state is unknown
  };
  // Describes the loss of a peer until it is reported.
  struct LostPeer {
    int number;  // -1: not a member
    std::string cause;
    bool says_how;
    Clock::time_point at;
    std::string cut = {};  // how its connection ended, if nothing else is known
    std::string_view remedy = "see that process's own error";
  };

  void find_peer_state(int peer, PeerStatus& status);
  void explain_cut();
  void log_silence(int peer, PeerStatus& status, bool is_silent);

  Tcp::Shared& shared_;
  const TcpMembers& members_;
  LostMemberLookup lookup_;
  unsigned lookup_turns_ = 0;
  std::map<int, PeerStatus> peers_;
  std::optional<LostPeer> loss_;
  std::optional<OutsidePause> no_mpi_;  // from the loss on
  bool is_reported_ = false;
};

}  // namespace lockstep::tcp
