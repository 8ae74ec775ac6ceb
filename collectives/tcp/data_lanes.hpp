// SPDX-License-Identifier: Apache-2.0
// Carries the data of collective calls: one connection per lane and peer.
//
// A TcpTransport owns it, and its mutex protects it. Connections are made when a lane first sends to a peer.
#pragma once

#include <poll.h>

#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/tcp/lane_stream.hpp"
#include "collectives/tcp/peer_connections.hpp"

namespace lockstep::tcp {

// Describes the round that a lane has under way. Rounds of point-to-point messages use the control connections.
struct LaneRound {
  PendingCounts left;
  std::vector<int> peers;
  bool is_message = false;
  std::chrono::steady_clock::time_point begun;
  bool is_watched = false;  // connections for control messages show whether its peers live
};

// Holds the data connections to all peers, and moves their messages.
class DataLanes {
 public:
  // All references must stay.
  DataLanes(const TcpMembers& members, PeerFailures& failures, PeerConnections& connections, EventPoll& poll,
            MessageErrors& errors);

  // Takes a connection that has been made.
  void open(int peer, std::size_t lane, Descriptor socket);
  // Post a message. post_send() connects if necessary.
  void post_send(int peer, std::size_t lane, const PostedSend& sending);
  void post_receive(int peer, std::size_t lane, const PostedReceive& want) { stream(peer, lane).post_receive(want); }
  // Sends and receives as much as it can without blocking. Returns false if there is no connection.
  bool move(int peer, std::size_t lane);
  // Sends the messages just posted, and leaves the end of a connection to move().
  void flush(int peer, std::size_t lane);
  // Sends as much as it can on all lanes.
  void flush_all();
  // True if messages are not with the kernel yet.
  bool is_sending() const;
  // Handles that the other side has closed a connection; its earlier data can still be read.
  void stop_watching(int peer, std::size_t lane);

  // Throws an Error if a round needs a connection that has ended, and no message has explained that.
  void check_broken(const std::deque<LaneRound>& rounds);
  // Adds the connections of a lane that a sleeping thread has to wait for. Returns true if the kernel lacks memory for
  // a message at the moment, which no event ends.
  bool add_awaited(std::size_t lane, std::span<const int> peers, std::vector<pollfd>& awaited);
  // Calls `act` with the socket of each connection to the peer.
  template <class Act>
  void for_each_socket(int peer, const Act& act) const {
    const auto found = peers_.find(peer);
    if (found == peers_.end()) return;
    for (const LaneStream& each : found->second->streams)
      if (each.is_open()) act(each.socket());
  }

  // Drops all posted messages, and closes all connections.
  void give_up();
  // Hands over the connections with unread data; closing those would destroy data of ours on its way.
  void close(Acceptor& acceptor);

 private:
  using Clock = std::chrono::steady_clock;
  struct BrokenConnection {
    int error;
    Clock::time_point at;
  };
  struct PeerLanes {
    std::array<LaneStream, lane_count> streams;
    std::array<std::optional<BrokenConnection>, lane_count> broken;
  };

  PeerLanes& lanes_of(int peer);
  LaneStream& stream(int peer, std::size_t lane) { return lanes_of(peer).streams[lane]; }
  void end(int peer, std::size_t lane, int error);
  void check_broken(int peer, std::size_t lane, Clock::time_point now, Clock::duration since_check);

  const TcpMembers& members_;
  PeerFailures& failures_;
  PeerConnections& connections_;
  EventPoll& poll_;
  MessageErrors& errors_;
  std::map<int, std::unique_ptr<PeerLanes>> peers_;
  std::vector<std::byte> window_;
  bool has_broken_ = false;
  Clock::time_point broken_checked_at_;
  bool is_given_up_ = false;
};

}  // namespace lockstep::tcp
