// SPDX-License-Identifier: Apache-2.0
// Accepts connections for all communicators of the process, at one port and at one name on this host. A caller reaches
// the member that it wants, or receives the last words of a member that has left. So a port without a listener means
// that its process has ended.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "collectives/tcp/handshake.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep::tcp {

// Owns the listening sockets and every connection whose handshake or farewell is not complete. Any thread may call it.
class Acceptor {
 public:
  // Listens at `address`, at a port that the kernel chooses; with `everywhere` at all addresses of the host. Callers
  // must prove `key`. Throws Error system.
  Acceptor(const std::string& address, bool everywhere, std::shared_ptr<const Secret> key);
  // Waits at most 500 ms for bytes that are still to be sent.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Return the place that callers connect to, and the shared key.
  const ListeningAddress& place() const { return listeners_.place; }
  const std::shared_ptr<const Secret>& key() const { return key_; }

  // Holds the connections that other members have opened to one member. Their handshakes are in state `introduced`, so
  // the member has to answer them.
  class IncomingConnections {
   public:
    IncomingConnections();
    // Returns the connections that have come since the last call, and silences the bell.
    std::vector<Handshake> take();
    // Returns an eventfd that can be read while connections wait; the object owns it.
    const Descriptor& bell() const { return bell_; }

   private:
    friend class Acceptor;
    void add(Handshake shake);
    Descriptor bell_;
    std::mutex mutex_;
    std::vector<Handshake> all_;
  };
  // Registers a member, and returns its incoming connections. Connections that came too early for it are among them.
  std::shared_ptr<IncomingConnections> open(const MemberId& member);
  // Holds the frames that a member leaves behind: for members without a connection for control messages, and for any
  // other later caller.
  struct LastWords {
    std::map<std::uint32_t, Bytes> own;  // by rank
    Bytes others;
  };
  // Removes a member. From now on its callers on this channel receive the last words, also those that wait already. The
  // words of the last 4096 members are kept.
  void close(const MemberId& member, std::uint32_t channel, LastWords last_words);

  // Takes a connection of an ended transport, and sends `rest` on it. It reads and discards data until the other side
  // has ended, for at most 5 s. Closing a socket with unread data would destroy data that the other side has not read.
  void see_off(Descriptor socket, Bytes rest);
  // Takes a connection in the middle of its handshake; after the handshake it sends `rest`.
  void see_off(Handshake shake, Bytes rest);

  // Accepts callers and advances all handshakes and farewells, without blocking. Returns at once if another thread is
  // in it.
  void move();
  // Returns an epoll that can be read if move() has work; the object owns it.
  const Descriptor& door() const { return door_; }
  // Adds door() to a member's own epoll. Throws Error system if the kernel allows no more nested ones.
  void let_wait(const Descriptor& place);
  // Returns the errno that has kept all callers out for more than a second, or 0.
  int why_shut() const { return why_shut_; }
  // Closes the oldest connection that has not proven the key, to free a descriptor. Returns false if there is none.
  bool make_room();

  // Return the number of connections that have not proven the key, and how often one was looked at; tests use the
  // latter.
  std::size_t strangers() const;
  std::uint64_t looks_at_strangers() const { return looks_; }

 private:
  // Remembers a member that has left, and its last words.
  struct DepartedMember {
    std::uint32_t channel;
    LastWords last_words;
  };
  // Holds a connection in its handshake, with bytes to send afterwards.
  struct ClosingHandshake {
    Handshake shake;
    Bytes rest;
    std::chrono::steady_clock::time_point since;
  };
  // Holds a connection to be closed, and the bytes still to send.
  struct ClosingConnection {
    Descriptor socket;
    Bytes rest;
    std::size_t said = 0;
    std::chrono::steady_clock::time_point since;
  };
  // Adds a socket to door().
  void watch(const Descriptor& socket) const;
  // Accepts waiting callers of one listener. Returns the errno that kept one out, or 0.
  int let_in(const Descriptor& listener);
  void remember_shut(int error);
  // Advances the handshake of one socket, and leads it on once it has proven the key.
  void move_stranger(int socket);
  // Closes the oldest connection that has not proven the key; drop_late() closes those that took too long.
  bool drop_oldest();
  void drop_late();
  // Lead connections to the members that they want. lead() returns false if there is no such member yet.
  void lead_introduced();
  bool lead(Handshake& shake);
  void tell_last_words(Handshake& shake, DepartedMember& gone);
  void move_messengers();
  void see_off_inside(Descriptor socket, Bytes rest);
  // Sends and discards data. Returns true once the connection is finished.
  static bool is_over(ClosingConnection& one);
  // True if bytes of a farewell are still to be sent.
  bool is_saying();

  std::shared_ptr<const Secret> key_;
  ListeningSockets listeners_;
  Descriptor door_;  // an epoll
  mutable std::mutex mutex_;
  // Holds a connection that has not proven the key.
  struct UnverifiedConnection {
    Handshake shake;
    std::chrono::steady_clock::time_point since;
  };
  std::list<UnverifiedConnection> strangers_;  // oldest first
  std::map<int, std::list<UnverifiedConnection>::iterator> by_socket_;
  // Holds connections that have proven the key; the member that they want does not exist yet.
  std::list<Handshake> introduced_;
  std::atomic<std::uint64_t> looks_ = 0;
  std::map<MemberId, std::shared_ptr<IncomingConnections>> here_;
  std::map<MemberId, DepartedMember> gone_;
  std::deque<MemberId> order_of_going_;
  std::list<ClosingConnection> leaving_;
  std::list<ClosingHandshake> messengers_;
  std::chrono::steady_clock::time_point shut_since_;
  std::atomic<int> why_shut_ = 0;
  ProgressHook hook_{[this] { move(); }};
};

}  // namespace lockstep::tcp
