// SPDX-License-Identifier: Apache-2.0
// Closes connections in good order: sends the remaining data, and then reads until the other side has closed, too.
//
// The Acceptor of the process owns it, because connections may outlive their communicator.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>

#include "collectives/tcp/handshake.hpp"

namespace lockstep::tcp {

// Holds connections of members that have left. One thread at a time may use it.
class ClosingConnections {
 public:
  // Takes a connection, and sends `rest` on it. Data that comes is discarded until the other side has closed, for at
  // most 5 s: closing a socket with unread data would destroy data that the other side has not read.
  void add(Descriptor socket, Bytes rest);
  // Does the same with a connection in the middle of its handshake; after the handshake it sends `rest`.
  void add(Handshake handshake, Bytes rest);
  // Sends and discards as much as it can without blocking.
  void progress();
  // True if bytes are still to be sent.
  bool is_sending() const;

 private:
  using Clock = std::chrono::steady_clock;
  struct ClosingConnection {
    Descriptor socket;
    Bytes rest;
    std::size_t sent = 0;
    Clock::time_point since;
  };
  struct ClosingHandshake {
    Handshake handshake;
    Bytes rest;
    Clock::time_point since;
  };
  // Returns true once the connection is finished.
  static bool is_over(ClosingConnection& connection);
  void advance_handshakes(Clock::time_point now);

  std::list<ClosingConnection> connections_;
  std::list<ClosingHandshake> handshakes_;
};

}  // namespace lockstep::tcp
