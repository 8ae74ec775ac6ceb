// SPDX-License-Identifier: Apache-2.0
// What lies between members that do not exist: any number of them in one thread, a clock that is set, and a network
// that delivers what is due. The same seed gives the same run, whatever the machine. Without a fabric everything takes
// a time that is drawn, mostly short, and half of the messages wait for their receivers; with one it takes what the
// links let through.
#pragma once

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include "collectives/engine/transport.hpp"
#include "collectives/simulated/fabric.hpp"
#include "topology/base/text.hpp"

namespace lockstep::simulated {

class Network {
 public:
  Network(int size, std::uint64_t seed, const FabricShape* fabric = nullptr);

  int size() const { return static_cast<int>(members_.size()); }
  Duration now() const { return now_; }
  // Evenly one of 0 .. below - 1.
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  bool chance(unsigned percent) { return draw(100) < percent; }

  // When something will happen by itself, if anything will.
  std::optional<Duration> next() const;
  void set_clock(Duration now) { now_ = now; }
  // Lets everything happen that is due by now.
  void deliver();
  // Whoever may have something to do since this was asked last.
  std::vector<int> take_woken();
  // A member's core works so long, when it has done what it does now; and when it will have.
  void work(int member, Duration takes);
  Duration free_at(int number) const { return std::max(now_, members_[static_cast<std::size_t>(number)].free); }
  std::uint64_t messages() const { return messages_; }
  std::uint64_t bytes_between_nodes() const { return far_bytes_; }

  void post(int member, Stamp stamp, std::span<const Outgoing> sends, std::span<const Incoming> receives);
  bool done(int member, int lane);
  void abandon(int member);
  void tell(int member, int peer, Bytes bytes);
  // A bit of the next message that this member sends changes on its way.
  void flip_next(int number) { member(number).flips = true; }
  std::optional<Transport::Heard> hear(int member);

 private:
  struct Key {
    int source;
    int target;
    int channel;
    std::uint32_t mark;
    bool operator<(const Key& other) const {
      return std::tie(source, target, channel, mark) < std::tie(other.source, other.target, other.channel, other.mark);
    }
  };
  struct Sent {
    std::size_t bytes = 0;
    const void* data = nullptr;   // of one that waits for its receiver
    std::vector<std::byte> copy;  // of one that went at once
    bool waits = false;
    bool has_come = false;
    bool given_up = false;
    int lane = 0;
  };
  struct Wanted {
    void* data;
    std::size_t bytes;
    int lane;
  };
  struct Pair {
    std::deque<std::shared_ptr<Sent>> sent;  // in the order in which they match
    std::deque<Wanted> wanted;
  };
  // What is on its way: packets of a message.
  struct Travel {
    std::map<Key, Pair>::iterator pair;
    std::shared_ptr<Sent> sent;
    std::vector<int> path;
    std::size_t packet = 0;  // bytes of each
    std::size_t left = 0;    // bytes that have not begun
    std::size_t coming = 0;  // bytes that have not come
    int source = 0;
    bool is_held = false;         // the sender's round lasts until all of it is on its way
    std::uint64_t abandoned = 0;  // how often the sender had given up then
  };
  // A message and who wants it, while the core there is at it.
  struct Taking {
    int source;
    int target;
    std::shared_ptr<Sent> sent;
    Wanted wanted;
    std::uint64_t abandoned;  // how often its target had given up then
  };
  // What happens: a packet's head is at a link, its tail at its end, a source may send its next packet, a message has
  // been taken, a word comes.
  struct Event {
    enum class Kind : std::uint8_t { source, packet, gone, arrival, taken, word };
    Duration at;
    std::uint64_t order;
    Kind kind;
    int link = 0;           // of a source; of a word: who hears it
    std::size_t hop = 0;    // of a packet
    std::size_t bytes = 0;  // of a packet
    Duration tail{};        // of a packet
    std::shared_ptr<Travel> travel;
    std::shared_ptr<Taking> taking = {};
    bool operator>(const Event& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  struct Word {
    Duration at;
    Bytes bytes;
  };
  struct Member {
    std::map<int, int> left;                // messages of each lane
    std::map<int, std::deque<Word>> words;  // by who sent them
    std::string wrong;
    Duration free{};  // when its core is
    std::uint64_t abandoned = 0;
    bool flips = false;
    bool is_woken = false;
  };

  Member& member(int number) { return members_[static_cast<std::size_t>(number)]; }
  Duration drawn();
  void add(Event event);
  void wake(int number);
  void send(std::map<Key, Pair>::iterator pair, std::shared_ptr<Sent> sent, Duration at);
  void begin(const std::shared_ptr<Travel>& travel);
  void serve(int link);
  void carry(const Event& event);
  void leave(const Travel& travel);
  void arrive(const Event& event);
  void meet(std::map<Key, Pair>::iterator at);
  void take(const Taking& taking);

  std::mt19937_64 random_;
  Duration now_{};
  std::optional<Fabric> fabric_;
  std::vector<Member> members_;
  std::map<Key, Pair> pairs_;
  std::priority_queue<Event, std::vector<Event>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  // Messages that take turns at the first link of their way.
  struct Source {
    std::deque<std::shared_ptr<Travel>> waiting;
    bool is_due = false;
  };
  std::map<int, Source> sources_;
  std::vector<int> woken_;
  std::uint64_t messages_ = 0;
  std::uint64_t far_bytes_ = 0;
};

}  // namespace lockstep::simulated
