// SPDX-License-Identifier: Apache-2.0
// Makes the connections between two ranks. The rank that first has something to send connects. If both connect at
// once, the connection of the lower rank counts.
//
// A TcpTransport owns it. It hands an open connection to DataLanes or ControlMessages, which own it from then on.
#pragma once

#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>

#include "collectives/tcp/acceptor.hpp"
#include "collectives/tcp/connection_retries.hpp"
#include "collectives/tcp/event_poll.hpp"
#include "collectives/tcp/peer_failures.hpp"

namespace lockstep::tcp {

// Says how far a connection is. awaited: the other side has said that it connects. over: nothing goes there any more.
enum class ConnectionState : std::uint8_t { none, connecting, awaited, open, over };

// Is a connection that has just been made, with its socket.
struct OpenedConnection {
  int peer;
  std::uint32_t channel;
  Descriptor socket;
};

// Knows the state of all connections of a member, and runs the handshakes of those that are being made.
class PeerConnections {
 public:
  // All references must stay.
  PeerConnections(Tcp::Shared& shared, const TcpMembers& members, PeerFailures& failures, EventPoll& poll);

  ConnectionState state(int peer, std::uint32_t channel) const;
  // Connects, if neither side has. A connection that is optional is not made without a free descriptor.
  void connect(int peer, std::uint32_t channel, bool is_optional = false);
  // Marks a connection as ended.
  void set_over(int peer, std::uint32_t channel) { peers_[peer].states[channel] = ConnectionState::over; }
  // Accepts no more data connections, and retries none.
  void give_up_data();

  // Answers the callers that have come, and returns the next connection that is made thereby.
  std::optional<OpenedConnection> accept_next();
  // Closes the connections of callers that have come and have no answer, so that they call again.
  void drop_callers() { introduced_.clear(); }
  // Advances the handshake of an outgoing connection. Returns the connection once it is made.
  std::optional<OpenedConnection> advance(int socket);
  // Connects again to peers that could not be reached, if the time has come.
  void retry();
  // Returns the errno of a lack of descriptors that has lasted for more than a second, or 0.
  int lasting_shortage() const { return retries_.lasting_shortage(); }
  // True if handshakes of outgoing connections are under way.
  bool is_connecting() const { return !outgoing_.empty(); }
  // Gives away the handshake of an outgoing connection.
  std::optional<Handshake> release_handshake(int peer, std::uint32_t channel);

  // Calls `act` with the number of each peer to which there is or was a connection.
  template <class Act>
  void for_each_peer(const Act& act) const {
    for (const auto& [peer, links] : peers_) act(peer);
  }

 private:
  struct PeerLinks {
    std::array<ConnectionState, channel_count> states{};
    int retries_after_close = 2;  // if it closes the connection without a message
  };
  // Holds the handshake of a connection to another member; `is_local` if by the name on this host.
  struct OutgoingConnection {
    Handshake handshake;
    bool is_local;
  };

  void start(int peer, std::uint32_t channel, bool is_local, bool is_optional = false);
  void fail(int peer, std::uint32_t channel, int error);
  bool accepts(int peer, std::uint32_t channel);
  OpenedConnection opened(int peer, std::uint32_t channel, Descriptor socket);
  std::map<int, OutgoingConnection>::iterator find_outgoing(int peer, std::uint32_t channel);

  std::chrono::milliseconds silence_;
  Acceptor& acceptor_;
  const TcpMembers& members_;
  PeerFailures& failures_;
  EventPoll& poll_;
  std::shared_ptr<Acceptor::IncomingConnections> incoming_;
  std::deque<Handshake> introduced_;            // callers without an answer
  std::map<int, OutgoingConnection> outgoing_;  // by descriptor
  std::map<int, PeerLinks> peers_;
  ConnectionRetries retries_;
  bool has_given_up_data_ = false;
};

}  // namespace lockstep::tcp
