// SPDX-License-Identifier: Apache-2.0
// Accepts the connections of a server and hands them to gRPC. gRPC's own listener closes for good when descriptors run
// out. It also takes any number of connections. This one trusts a connection when a call on it has proven the key. It
// limits the number and the age of untrusted connections, and gRPC sees only those that have sent something.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "runtime/rpc/untrusted_connections.hpp"

namespace lockstep::rpc::detail {

class Listener {
 public:
  // Takes ownership of the descriptor of a connection.
  using ConnectionHandler = std::function<void(int descriptor)>;

  // Binds "host:port", port 0 to a free one, and listens. Throws Error system if it cannot.
  explicit Listener(const std::string& address);
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::uint16_t port() const { return port_; }
  // Accepts connections on a thread of its own until stop().
  void start(ConnectionHandler hand_over);
  // Ends the thread. The destructor calls it.
  void stop();

  // Keeps a connection open without a limit of time: a call on it has proven the key. `peer` names a connection as
  // gRPC does. Any thread may call this and count_unproven(); they do nothing for trusted connections.
  void trust(std::string_view peer);
  // Counts a call that proves nothing. Ends a connection with too many such calls, because gRPC keeps each for a while
  // with a window of bytes.
  void count_unproven(std::string_view peer);

 private:
  int bind_all(const std::string& host, const std::string& port);
  void wake() const;
  void run(const ConnectionHandler& hand_over);
  void handle_event(int descriptor, std::uint32_t events);
  void accept_connection(int listening);
  void make_room();

  std::uint16_t port_ = 0;
  std::vector<Socket> listening_;
  Epoll epoll_;
  Socket bell_;  // Wakes the thread.
  std::mutex mutex_;
  UntrustedConnections connections_{epoll_};
  bool lacks_descriptors_ = false;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep::rpc::detail
