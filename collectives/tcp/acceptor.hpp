// SPDX-License-Identifier: Apache-2.0
// The members that live in this process are found at one port, and one name on this host, for all of its
// communicators. A caller is led to the member that it wants, or hears the LastWords of one that has left its
// communicator. So a port at which nobody listens is that of a process that has ended.
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

class Acceptor {
 public:
  Acceptor(const std::string& address, bool everywhere, std::shared_ptr<const Secret> key);
  // Waits a little for those who still have something to say.
  ~Acceptor();
  Acceptor(const Acceptor&) = delete;
  Acceptor& operator=(const Acceptor&) = delete;

  const ListeningAddress& place() const { return listeners_.place; }
  const std::shared_ptr<const Secret>& key() const { return key_; }

  // Where a member finds those who have called it.
  class IncomingConnections {
   public:
    IncomingConnections();
    std::vector<Handshake> take();
    // Can be read when there is one.
    const Descriptor& bell() const { return bell_; }

   private:
    friend class Acceptor;
    void add(Handshake shake);
    Descriptor bell_;
    std::mutex mutex_;
    std::vector<Handshake> all_;
  };
  std::shared_ptr<IncomingConnections> open(const MemberId& member);
  // A member leaves these frames behind: for members to which it has no connection for control messages, and for each
  // other one that calls.
  struct LastWords {
    std::map<std::uint32_t, Bytes> own;  // by rank
    Bytes others;
  };
  // Who calls it on this channel from now on, or has called, hears them.
  void close(const MemberId& member, std::uint32_t channel, LastWords last_words);

  // A connection of a transport that has ended, with what is still to be said on it. What comes is thrown away until
  // the other side has ended as well; for who closes a connection with something unread in it takes away what the other
  // side has not read either.
  void see_off(Descriptor socket, Bytes rest);
  // One that was just being made.
  void see_off(Handshake shake, Bytes rest);

  // Lets in who has called, by any thread, as far as it goes.
  void move();
  // There is something to move when this can be read.
  const Descriptor& door() const { return door_; }
  // Lets a member's place to wait (epoll) tell of the door. Throws Error system if the kernel allows no more of them.
  void let_wait(const Descriptor& place);
  // Why, for a while now, nobody who has knocked could be let in, as errno says it; 0: all could.
  int why_shut() const { return why_shut_; }
  // Closes the oldest connection that has not proven the key, for its descriptor. False: there is none.
  bool make_room();

  // Returns how many connections have not proven the key, and how often one of them was looked at.
  std::size_t strangers() const;
  std::uint64_t looks_at_strangers() const { return looks_; }

 private:
  struct DepartedMember {
    std::uint32_t channel;
    LastWords last_words;
  };
  struct ClosingHandshake {
    Handshake shake;
    Bytes rest;
    std::chrono::steady_clock::time_point since;
  };
  struct ClosingConnection {
    Descriptor socket;
    Bytes rest;
    std::size_t said = 0;
    std::chrono::steady_clock::time_point since;
  };
  void watch(const Descriptor& socket) const;
  int let_in(const Descriptor& listener);
  void remember_shut(int error);
  void move_stranger(int socket);
  bool drop_oldest();
  void drop_late();
  void lead_introduced();
  bool lead(Handshake& shake);
  void tell_last_words(Handshake& shake, DepartedMember& gone);
  void move_messengers();
  void see_off_inside(Descriptor socket, Bytes rest);
  static bool is_over(ClosingConnection& one);
  bool is_saying();

  std::shared_ptr<const Secret> key_;
  ListeningSockets listeners_;
  Descriptor door_;  // epoll
  mutable std::mutex mutex_;
  struct UnverifiedConnection {
    Handshake shake;
    std::chrono::steady_clock::time_point since;
  };
  std::list<UnverifiedConnection> strangers_;  // oldest first
  std::map<int, std::list<UnverifiedConnection>::iterator> by_socket_;
  std::list<Handshake> introduced_;  // have proven the key; the member that they want is not there yet
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
