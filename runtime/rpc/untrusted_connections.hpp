// SPDX-License-Identifier: Apache-2.0
// Holds the connections of a server on which no call has proven the key yet. It limits their number and their age, and
// chooses those that gRPC may serve.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <list>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/rpc/socket.hpp"

namespace lockstep::rpc::detail {

// Limits the calls that a client has under way on one connection. A guess.
inline constexpr int calls_at_once = 128;

// Watches their descriptors. A lock of the caller protects it, except for serves_any().
class UntrustedConnections {
 public:
  explicit UntrustedConnections(const Epoll& epoll) : epoll_(epoll) {}

  bool is_empty() const { return silent_.empty() && waiting_.empty() && speaking_.empty(); }
  // True if gRPC serves one of them. Any thread may ask.
  bool serves_any() const { return served_ > 0; }
  void add(Socket socket);
  // Handles events of a descriptor; does nothing if it belongs to none of the connections.
  void handle_event(int descriptor, std::uint32_t events);
  // Appends duplicates of the descriptors that gRPC gets now. Returns false if the system lacks descriptors.
  bool admit(std::vector<int>& admitted);
  // Makes room for another connection, if there is one to drop.
  void drop_one();
  // Drops those that have had their time, or have sent too much.
  void drop_late();
  // Leaves a connection to gRPC for good. `peer` names it as gRPC does. Returns true if another one waits for its
  // place.
  bool trust(std::string_view peer);
  // Counts a call that proves nothing, and drops a connection with too many.
  void count_unproven(std::string_view peer);

 private:
  using Clock = std::chrono::steady_clock;
  struct UntrustedConnection {
    Socket socket;  // Has a duplicate in gRPC once the connection is in `speaking_`.
    std::string host;
    std::string port;  // Is the end of the peer's name: ":4711".
    Clock::time_point since;
    int unproven_calls = 0;
    bool is_called(std::string_view peer) const;
  };
  // Is ordered with the oldest first.
  using ConnectionList = std::list<UntrustedConnection>;
  struct ConnectionEntry {
    ConnectionList* where;
    ConnectionList::iterator which;
  };

  void check(const ConnectionEntry& entry, std::uint32_t events);
  void forget(ConnectionList& from, ConnectionList::iterator which);
  void drop(ConnectionList& from, ConnectionList::iterator which);
  static bool says_too_much(const UntrustedConnection& one);
  void expel(ConnectionList::iterator which);
  ConnectionList::iterator find(std::string_view peer);

  const Epoll& epoll_;
  ConnectionList silent_;    // Have sent nothing yet.
  ConnectionList waiting_;   // Have sent something, and wait for their turn.
  ConnectionList speaking_;  // Are served by gRPC.
  // Holds the times at which connections were dropped for sending too much, the oldest first.
  std::deque<Clock::time_point> expelled_;
  std::map<int, ConnectionEntry> connections_;  // Is indexed by descriptor.
  std::atomic<std::size_t> served_{0};          // Is the size of `speaking_`.
};

}  // namespace lockstep::rpc::detail
