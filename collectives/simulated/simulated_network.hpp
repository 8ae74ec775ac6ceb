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

class SimulatedNetwork {
 public:
  SimulatedNetwork(int size, std::uint64_t seed, const FabricShape* fabric = nullptr);

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

  void post(int member, RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives);
  bool done(int member, int lane);
  void abandon(int member);
  void tell(int member, int peer, Bytes bytes);
  // A bit of the next message that this member sends changes on its way.
  void flip_next(int number) { member(number).flips = true; }
  std::optional<Transport::SmallMessage> hear(int member);

 private:
  struct ChannelKey {
    int source;
    int target;
    int channel;
    std::uint32_t call_tag;
    bool operator<(const ChannelKey& other) const {
      return std::tie(source, target, channel, call_tag) <
             std::tie(other.source, other.target, other.channel, other.call_tag);
    }
  };
  struct SentMessage {
    std::size_t bytes = 0;
    const void* data = nullptr;   // of one that waits for its receiver
    std::vector<std::byte> copy;  // of one that went at once
    bool waits = false;
    bool has_come = false;
    bool given_up = false;
    int lane = 0;
  };
  struct PendingReceive {
    void* data;
    std::size_t bytes;
    int lane;
  };
  struct MessageQueues {
    std::deque<std::shared_ptr<SentMessage>> sent;  // in the order in which they match
    std::deque<PendingReceive> wanted;
  };
  // What is on its way: packets of a message.
  struct MessageTransfer {
    std::map<ChannelKey, MessageQueues>::iterator pair;
    std::shared_ptr<SentMessage> sent;
    std::vector<int> path;
    std::size_t packet = 0;  // bytes of each
    std::size_t left = 0;    // bytes that have not begun
    std::size_t coming = 0;  // bytes that have not come
    int source = 0;
    bool is_held = false;         // the sender's round lasts until all of it is on its way
    std::uint64_t abandoned = 0;  // how often the sender had given up then
  };
  // A message and who wants it, while the core there is at it.
  struct Delivery {
    int source;
    int target;
    std::shared_ptr<SentMessage> sent;
    PendingReceive wanted;
    std::uint64_t abandoned;  // how often its target had given up then
  };
  enum class NetworkEventKind : std::uint8_t { source, packet, gone, arrival, taken, word };
  // What happens: a packet's head is at a link, its tail at its end, a source may send its next packet, a message has
  // been taken, a control message (word) comes.
  struct NetworkEvent {
    Duration at;
    std::uint64_t order;
    NetworkEventKind kind;
    int link = 0;           // of a source; of a word: the member that hears it
    std::size_t hop = 0;    // of a packet
    std::size_t bytes = 0;  // of a packet
    Duration tail{};        // of a packet
    std::shared_ptr<MessageTransfer> travel;
    std::shared_ptr<Delivery> taking = {};
    bool operator>(const NetworkEvent& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  struct ControlDelivery {
    Duration at;
    Bytes bytes;
  };
  struct SimulatedMember {
    std::map<int, int> left;                           // messages of each lane
    std::map<int, std::deque<ControlDelivery>> words;  // by who sent them
    std::string wrong;
    Duration free{};  // when its core is
    std::uint64_t abandoned = 0;
    bool flips = false;
    bool is_woken = false;
  };

  SimulatedMember& member(int number) { return members_[static_cast<std::size_t>(number)]; }
  Duration drawn();
  void add(NetworkEvent event);
  void wake(int number);
  void send(std::map<ChannelKey, MessageQueues>::iterator pair, std::shared_ptr<SentMessage> sent, Duration at);
  void begin(const std::shared_ptr<MessageTransfer>& travel);
  void serve(int link);
  void carry(const NetworkEvent& event);
  void leave(const MessageTransfer& travel);
  void arrive(const NetworkEvent& event);
  void meet(std::map<ChannelKey, MessageQueues>::iterator at);
  void take(const Delivery& taking);

  std::mt19937_64 random_;
  Duration now_{};
  std::optional<Fabric> fabric_;
  std::vector<SimulatedMember> members_;
  std::map<ChannelKey, MessageQueues> pairs_;
  std::priority_queue<NetworkEvent, std::vector<NetworkEvent>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  // Messages that take turns at the first link of their way.
  struct LinkQueue {
    std::deque<std::shared_ptr<MessageTransfer>> waiting;
    bool is_due = false;
  };
  std::map<int, LinkQueue> sources_;
  std::vector<int> woken_;
  std::uint64_t messages_ = 0;
  std::uint64_t far_bytes_ = 0;
};

}  // namespace lockstep::simulated
