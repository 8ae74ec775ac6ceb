// SPDX-License-Identifier: Apache-2.0
// Where the members that live in this process are found: one port, and one name on this host, for all of its
// communicators. Who calls is led to the member that it wants; who wants one that has left its communicator hears that
// one's last words. So a port at which nobody listens is that of a process that has ended.
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
#include "topology/base/movers.hpp"

namespace lockstep::tcp {

class Reception {
 public:
  Reception(const std::string& address, bool everywhere, std::shared_ptr<const Secret> key);
  // Waits a little for those who still have something to say.
  ~Reception();
  Reception(const Reception&) = delete;
  Reception& operator=(const Reception&) = delete;

  const Place& place() const { return listeners_.place; }
  const std::shared_ptr<const Secret>& key() const { return key_; }

  // Where a member finds those who have called it.
  class Callers {
   public:
    Callers();
    std::vector<Handshake> take();
    // Can be read when there is one.
    const Descriptor& bell() const { return bell_; }

   private:
    friend class Reception;
    void add(Handshake shake);
    Descriptor bell_;
    std::mutex mutex_;
    std::vector<Handshake> all_;
  };
  std::shared_ptr<Callers> open(const Desk& desk);
  // What a member leaves behind, as frames: for those with whom it has no connection for words, and for each other one
  // that calls.
  struct LastWords {
    std::map<std::uint32_t, Bytes> own;  // by rank
    Bytes others;
  };
  // Who calls it on this channel from now on, or has called, hears them.
  void close(const Desk& desk, std::uint32_t channel, LastWords last_words);

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
  // Why, for a while now, nobody who has knocked could be let in, as errno says it; 0: all could.
  int why_shut() const { return why_shut_; }

 private:
  struct Gone {
    std::uint32_t channel;
    LastWords last_words;
  };
  struct Messenger {
    Handshake shake;
    Bytes rest;
    std::chrono::steady_clock::time_point since;
  };
  struct Leaving {
    Descriptor socket;
    Bytes rest;
    std::size_t said = 0;
    std::chrono::steady_clock::time_point since;
  };
  void watch(const Descriptor& socket) const;
  int let_in(const Descriptor& listener);
  void remember_shut(int error);
  void lead();
  bool lead(Handshake& shake);
  void tell_last_words(Handshake& shake, Gone& gone);
  void move_messengers();
  void see_off_inside(Descriptor socket, Bytes rest);
  static bool is_over(Leaving& one);
  bool is_saying();

  std::shared_ptr<const Secret> key_;
  Listeners listeners_;
  Descriptor door_;  // epoll
  std::mutex mutex_;
  struct Stranger {
    Handshake shake;
    std::chrono::steady_clock::time_point since;
  };
  std::list<Stranger> shaking_;
  std::map<Desk, std::shared_ptr<Callers>> here_;
  std::map<Desk, Gone> gone_;
  std::deque<Desk> order_of_going_;
  std::list<Leaving> leaving_;
  std::list<Messenger> messengers_;
  std::chrono::steady_clock::time_point shut_since_;
  std::atomic<int> why_shut_ = 0;
  Mover mover_{[this] { move(); }};
};

}  // namespace lockstep::tcp
