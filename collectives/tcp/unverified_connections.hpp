// SPDX-License-Identifier: Apache-2.0
// Holds the connections that have not proven the key yet, and limits their number and their time.
//
// The Acceptor of the process owns it. Strangers can reach the port, so nothing of their bytes is kept beyond the
// proof.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>

#include "collectives/tcp/handshake.hpp"

namespace lockstep::tcp {

// Runs the handshakes of accepted connections up to the proof of the key. One thread at a time may use it.
class UnverifiedConnections {
 public:
  // Callers must prove `key`. The connections are in `epoll`, which must stay.
  UnverifiedConnections(const Descriptor& epoll, std::shared_ptr<const Secret> key)
      : epoll_(epoll), key_(std::move(key)) {}

  // Takes a connection that was just accepted, and sends its challenge. Closes the oldest one if there are too many.
  // Returns the handshake if the caller has proven the key already.
  std::optional<Handshake> add(Descriptor socket);
  // Advances the handshake of one socket. Returns it once the caller has proven the key.
  std::optional<Handshake> advance(int socket);
  // Closes the oldest connection, or those that took too long. drop_oldest() returns false if there is none.
  bool drop_oldest();
  void drop_late();
  std::size_t size() const { return connections_.size(); }

 private:
  struct UnverifiedConnection {
    Handshake handshake;
    std::chrono::steady_clock::time_point since;
  };

  const Descriptor& epoll_;
  std::shared_ptr<const Secret> key_;
  std::list<UnverifiedConnection> connections_;  // oldest first
  std::map<int, std::list<UnverifiedConnection>::iterator> by_socket_;
};

}  // namespace lockstep::tcp
