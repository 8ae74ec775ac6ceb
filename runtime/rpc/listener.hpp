// SPDX-License-Identifier: Apache-2.0
// Accepts the connections of a server and hands them to gRPC. gRPC's own listener closes for good when descriptors run
// out, and it takes any number of connections. This one trusts a connection when a call on it has proven the key. It
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

// Calls that a client may have under way on one connection.
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
  void stop();

  // `peer` names a connection as gRPC does. Any thread may call these; on trusted connections they do nothing.
  // A call on it has proven the key: the connection stays open, however long.
  void trust(std::string_view peer);
  // A call on it that proves nothing begins. Ends a connection with too many of them: gRPC keeps each for a while, and
  // each may hold a window of bytes.
  void count_unproven(std::string_view peer);

 private:
  using Clock = std::chrono::steady_clock;
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
  struct UntrustedConnection {
    Socket socket;  // gRPC has a duplicate once the stranger is in `speaking_`
    std::string host;
    std::string port;  // ":4711", as a peer's name ends
    Clock::time_point since;
    int unproven_calls = 0;
    bool is_called(std::string_view peer) const;
  };
  // Oldest first.
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
  Socket door_;  // epoll
  Socket bell_;  // wakes the thread
  std::mutex mutex_;
  UntrustedConnections silent_;                 // have sent nothing yet
  UntrustedConnections waiting_;                // have sent something, and wait for their turn
  UntrustedConnections speaking_;               // gRPC serves them
  std::deque<Clock::time_point> expelled_;      // when strangers that sent too much were dropped; oldest first
  std::map<int, ConnectionEntry> connections_;  // by descriptor
  std::atomic<std::size_t> served_{0};          // size of `speaking_`
  bool lacks_descriptors_ = false;
  std::atomic<bool> is_stopping_ = false;
  std::thread thread_;
};

}  // namespace lockstep::rpc::detail
