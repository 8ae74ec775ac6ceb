// SPDX-License-Identifier: Apache-2.0
// Carries control messages, and point-to-point messages: one connection per peer.
#pragma once

#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "collectives/tcp/control_stream.hpp"
#include "collectives/tcp/peer_connections.hpp"

namespace lockstep::tcp {

// Holds the control connections to all peers, and the control messages that have come.
class ControlMessages {
 public:
  // All references must stay.
  ControlMessages(const TcpMembers& members, PeerFailures& failures, PeerConnections& connections, EventPoll& poll,
                  MessageErrors& errors)
      : members_(members), failures_(failures), connections_(connections), poll_(poll), errors_(errors) {}

  // Takes a connection that has been made, and watches the peer's process if it is of this host.
  void open(int peer, Descriptor socket);
  // Sends a control message; connects if necessary. Drops it if the peer can receive nothing.
  void send_control(int peer, Bytes message);
  // True if all messages to this peer arrive without further help.
  bool is_told(int peer) const;
  // Returns the next control message that has come.
  std::optional<Transport::ReceivedControl> next();
  bool has_next() const { return !received_.empty(); }

  // Post a point-to-point message; post_send() connects if necessary.
  void post_send(int peer, const PostedSend& sending);
  void post_receive(int peer, const PostedReceive& want);
  // Reports point-to-point messages from these peers that have another length than their receive.
  void check_lengths(std::span<const int> peers);

  // Receives and sends as much as it can on one connection.
  void move(int peer);
  // Handles the end of a process of this host, for all its members.
  void end_process(int descriptor);
  // True if messages are not with the kernel yet.
  bool has_unsent() const;
  // Returns the socket of the connection to a peer; null if there is none.
  const StreamSocket* socket_of(int peer) const;

  // Drops the posted point-to-point messages.
  void give_up();
  // Sends the leave message on all connections; later callers will receive it, too.
  void leave(const Bytes& message);
  // Says farewell on all connections, and hands them over. Returns the frames for later callers.
  Acceptor::LeaveMessages close(Acceptor& acceptor);

 private:
  ControlStream& stream(int peer);
  ControlProgress receive(int peer);
  void flush(int peer);
  void end(int peer, int error);
  void close(int peer, ControlStream& stream, Acceptor& acceptor, Acceptor::LeaveMessages& messages);

  const TcpMembers& members_;
  PeerFailures& failures_;
  PeerConnections& connections_;
  EventPoll& poll_;
  MessageErrors& errors_;
  std::map<int, std::unique_ptr<ControlStream>> streams_;
  std::deque<Transport::ReceivedControl> received_;
  std::vector<Bytes> just_received_;  // keeps its memory
  Bytes leave_message_;
};

}  // namespace lockstep::tcp
