// SPDX-License-Identifier: Apache-2.0
// Accepts the connections of a server and hands them to gRPC. gRPC's own listener closes for good when descriptors run
// out. It also takes any number of connections. This one trusts a connection when a call on it has proven the key. It
// limits the number and the age of untrusted connections, and gRPC sees only those that have sent something.
#pragma once

#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace lockstep::rpc::detail {

// Limits the calls that a client has under way on one connection. A guess.
inline constexpr int calls_at_once = 128;

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
  using Clock = std::chrono::steady_clock;
  // Owns a descriptor, and closes it.
  class Socket {
   public:
    explicit Socket(int number = -1) : number_(number) {}
    ~Socket() {
      if (number_ >= 0) ::close(number_);
    }
    Socket(Socket&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
      std::swap(number_, other.number_);
      return *this;
    }
    int get() const { return number_; }

   private:
    int number_;
  };
  // Describes a connection on which no call has proven the key yet.
  struct UntrustedConnection {
    Socket socket;  // Has a duplicate in gRPC once the connection is in `speaking_`.
    std::string host;
    std::string port;  // Is the end of the peer's name: ":4711".
    Clock::time_point since;
    int unproven_calls = 0;
    bool is_called(std::string_view peer) const;
  };
  // Is ordered with the oldest first.
  using UntrustedConnections = std::list<UntrustedConnection>;
  struct ConnectionEntry {
    UntrustedConnections* where;
    UntrustedConnections::iterator which;
  };

  int bind_all(const std::string& host, const std::string& port);
  bool watch(int descriptor, std::uint32_t events, int operation) const;
  void wake() const;
  void run(const ConnectionHandler& hand_over);
  void look_at(int descriptor, std::uint32_t events);
  void let_in(int listening);
  void add(Socket socket);
  void check_untrusted(const ConnectionEntry& entry, std::uint32_t events);
  void admit(std::vector<int>& admitted);
  void forget(UntrustedConnections& from, UntrustedConnections::iterator which);
  void drop(UntrustedConnections& from, UntrustedConnections::iterator which);
  static bool says_too_much(const UntrustedConnection& one);
  void expel(UntrustedConnections::iterator which);
  bool drop_one();
  void drop_late();
  void make_room();
  UntrustedConnections::iterator find(std::string_view peer);

  std::uint16_t port_ = 0;
  std::vector<Socket> listening_;
  Socket door_;  // Is the epoll descriptor.
  Socket bell_;  // Wakes the thread.
  std::mutex mutex_;
  UntrustedConnections silent_;    // Have sent nothing yet.
  UntrustedConnections waiting_;   // Have sent something, and wait for their turn.
  UntrustedConnections speaking_;  // Are served by gRPC.
  // Holds the times at which connections were dropped for sending too much, the oldest first.
  std::deque<Clock::time_point> expelled_;
  std::map<int, ConnectionEntry> connections_;  // Is indexed by descriptor.
  std::atomic<std::size_t> served_{0};          // Is the size of `speaking_`.
  bool lacks_descriptors_ = false;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep::rpc::detail
