// SPDX-License-Identifier: Apache-2.0
// Accepts connections for all communicators of the process, at one port and at one name on this host. A caller reaches
// the member that it wants, or receives the leave message of a member that has left. So a port without a listener means
// that its process has ended.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "collectives/tcp/closing_connections.hpp"
#include "collectives/tcp/handshake.hpp"
#include "collectives/tcp/unverified_connections.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep::tcp {

// Owns the listening sockets, and every connection until its handshake or farewell is complete. Any thread may call it.
class Acceptor {
 public:
  // Listens at `address`, at a port that the kernel chooses; with `everywhere` at all addresses of the host. Callers
  // must prove `key`. Throws Error system.
  Acceptor(const std::string& address, bool everywhere, std::shared_ptr<const Secret> key);
  // Waits at most 500 ms for bytes that are still to be sent.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  // Return the address that callers connect to, and the shared key.
  const ListeningAddress& address() const { return listeners_.place; }
  const std::shared_ptr<const Secret>& key() const { return key_; }

  // Holds the connections that other members have opened to one member. Their handshakes are in state `introduced`, so
  // the member has to answer them.
  class IncomingConnections {
   public:
    IncomingConnections();
    // Returns the connections that have come since the last call, and resets the event.
    std::vector<Handshake> take();
    // Returns an eventfd that can be read while connections wait; the object owns it.
    const Descriptor& event() const { return event_; }

   private:
    friend class Acceptor;
    void add(Handshake handshake);
    Descriptor event_;
    std::mutex mutex_;
    std::vector<Handshake> all_;
  };
  // Registers a member, and returns its incoming connections. Connections that came too early for it are among them.
  std::shared_ptr<IncomingConnections> open(const MemberId& member);
  // Holds the frames that a member leaves behind: for members without a connection for control messages, and for any
  // other later caller.
  struct LeaveMessages {
    std::map<std::uint32_t, Bytes> own;  // by rank
    Bytes others;
  };
  // Removes a member. From now on its callers on this channel receive the messages, also those that wait already. The
  // messages of the last 4096 members are kept.
  void close(const MemberId& member, std::uint32_t channel, LeaveMessages messages);

  // Take a connection of an ended transport, and close it in good order, as ClosingConnections::add() does.
  void close_connection(Descriptor socket, Bytes rest);
  void close_connection(Handshake handshake, Bytes rest);

  // Accepts callers and advances all handshakes and farewells, without blocking. Returns at once if another thread is
  // in it.
  void progress();
  // Returns an epoll that can be read if progress() has work; the object owns it.
  const Descriptor& descriptor() const { return epoll_; }
  // Adds descriptor() to a member's own epoll. Throws Error system if the kernel allows no more nested ones.
  void add_to(const Descriptor& epoll);
  // Returns the errno that has kept all callers out for more than a second, or 0.
  int accept_error() const { return accept_error_; }
  // Closes the oldest connection that has not proven the key, to free a descriptor. Returns false if there is none.
  bool make_room();

  // Return the number of connections that have not proven the key, and how often one was advanced; for tests.
  std::size_t unverified_count() const;
  std::uint64_t unverified_advances() const { return unverified_advances_; }

 private:
  // Remembers a member that has left, and its messages.
  struct DepartedMember {
    std::uint32_t channel;
    LeaveMessages messages;
  };
  // Accepts waiting callers of one listener. Returns the errno that kept one out, or 0.
  int accept_callers(const Descriptor& listener);
  void remember_accept_error(int error);
  // Give connections to the members that they want. deliver() returns false if there is no such member yet.
  void deliver_introduced();
  void deliver_or_keep(std::optional<Handshake> introduced);
  bool deliver(Handshake& handshake);
  void send_leave_message(Handshake& handshake, DepartedMember& departed);
  bool is_sending();

  std::shared_ptr<const Secret> key_;
  ListeningSockets listeners_;
  Descriptor epoll_;
  mutable std::mutex mutex_;
  UnverifiedConnections unverified_;
  std::atomic<std::uint64_t> unverified_advances_ = 0;
  // Holds connections that have proven the key; the member that they want does not exist yet.
  std::list<Handshake> introduced_;
  std::map<MemberId, std::shared_ptr<IncomingConnections>> members_;
  std::map<MemberId, DepartedMember> departed_;
  std::deque<MemberId> departure_order_;
  ClosingConnections closing_;
  std::chrono::steady_clock::time_point error_since_;
  std::atomic<int> accept_error_ = 0;
  ProgressHook hook_{[this] { progress(); }};
};

}  // namespace lockstep::tcp
