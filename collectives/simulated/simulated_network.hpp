// SPDX-License-Identifier: Apache-2.0
// Simulates the network between simulated members: any number of them in one thread, and a clock that the caller sets.
// The same seed gives the same run on every machine. Without a fabric, each delivery takes a random time, mostly short,
// and half of the messages wait for their receivers. With a fabric, the links determine the time.
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
#include <utility>
#include <vector>

#include "collectives/engine/transport.hpp"
#include "collectives/simulated/fabric.hpp"
#include "topology/base/text.hpp"

namespace lockstep::simulated {

// Delivers messages and control messages between members when the clock reaches their time.
class SimulatedNetwork {
 public:
  // Makes a network of `size` members. `fabric` may be null, and is copied. Without data, messages have a length only.
  SimulatedNetwork(int size, std::uint64_t seed, const FabricShape* fabric = nullptr, bool has_data = true);

  int size() const { return static_cast<int>(members_.size()); }
  Duration now() const { return now_; }
  // Returns one of 0 .. below - 1, evenly distributed.
  std::uint64_t draw(std::uint64_t below) { return random_() % below; }
  // Returns true with that probability.
  bool chance(unsigned percent) { return draw(100) < percent; }

  // Returns the time of the next event; nothing if there is none.
  std::optional<Duration> next() const;
  void set_clock(Duration now) { now_ = now; }
  // Executes all events that are due by now.
  void deliver();
  // Returns the members that may have work since the last call.
  std::vector<int> take_woken();
  // Makes a member's core busy for that time, after its present work.
  void work(int member, Duration busy_time);
  // Returns the time from which a member's core is free.
  Duration free_at(int number) const { return std::max(now_, members_[static_cast<std::size_t>(number)].free); }
  // Count the messages so far, and the bytes between nodes (0 without a fabric).
  std::uint64_t messages() const { return messages_; }
  std::uint64_t bytes_between_nodes() const { return network_bytes_; }

  // Implement SimulatedTransport for one member; see Transport.
  void post(int member, RoundTag round_tag, std::span<const SendDescriptor> sends,
            std::span<const ReceiveDescriptor> receives);
  bool done(int member, int lane);
  void abandon(int member);
  void send_control(int member, int peer, Bytes bytes);
  // Changes a random bit of the next message that this member sends.
  void flip_next(int number) { member(number).flips = true; }
  std::optional<Transport::ReceivedControl> receive_control(int member);
  // Drops all control messages from now on. When all is over, members need not tell each other that they leave.
  void close() { is_closed_ = true; }

 private:
  // Identifies messages that match in order. Channel -1 is that of point-to-point messages.
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
  // Holds a message from its posting until it is delivered.
  struct SentMessage {
    std::size_t bytes = 0;
    // Points to the sender's memory if the message waits for its receiver.
    const void* data = nullptr;
    // Holds the data if the message left at once.
    std::vector<std::byte> copy;
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
    // Holds the sent messages in the order in which they match.
    std::deque<std::shared_ptr<SentMessage>> sent;
    std::deque<PendingReceive> wanted;
  };
  // Describes a message on its way in packets.
  struct MessageTransfer {
    std::map<ChannelKey, MessageQueues>::iterator pair;
    std::shared_ptr<SentMessage> sent;
    std::vector<int> path;
    // Gives the bytes of a packet, those that have not left, and those that have not arrived.
    std::size_t packet = 0;
    std::size_t left = 0;
    std::size_t coming = 0;
    int source = 0;
    // If true, the sender's round lasts until the whole message is on its way.
    bool is_held = false;
    // Counts how often the sender had abandoned its messages before.
    std::uint64_t abandoned = 0;
  };
  // Holds a message and its receive while the receiver's core handles it.
  struct Delivery {
    int source;
    int target;
    std::shared_ptr<SentMessage> sent;
    PendingReceive wanted;
    // Counts how often the receiver had abandoned its receives before.
    std::uint64_t abandoned;
  };
  enum class NetworkEventKind : std::uint8_t { source, packet, gone, arrival, taken, word };
  // Describes an event: a packet's head is at a link, its tail has arrived, or a source may send its next packet. Or a
  // sent message has left, a message has been received, or a control message (word) has come.
  struct NetworkEvent {
    Duration at;
    std::uint64_t order;
    NetworkEventKind kind;
    // Gives the source's link; for a word, the receiving member.
    int link = 0;
    // Describe a packet: the index of its link in the path, its length, and the time at which its tail arrives.
    std::size_t hop = 0;
    std::size_t bytes = 0;
    Duration tail{};
    std::shared_ptr<MessageTransfer> travel;
    std::shared_ptr<Delivery> taking = {};
    bool operator>(const NetworkEvent& other) const { return at != other.at ? at > other.at : order > other.order; }
  };
  struct ControlDelivery {
    Duration at;
    Bytes bytes;
  };
  struct SimulatedMember {
    // Counts for each lane the messages of its round that are not complete.
    std::map<int, int> left;
    // Holds by sender the control messages on their way to this member.
    std::map<int, std::deque<ControlDelivery>> words;
    std::string wrong;
    // Gives the time from which its core is free.
    Duration free{};
    std::uint64_t abandoned = 0;
    bool flips = false;
    bool is_woken = false;
  };

  SimulatedMember& member(int number) { return members_[static_cast<std::size_t>(number)]; }
  Duration drawn();
  void add(NetworkEvent event);
  void wake(int number);
  void send(std::map<ChannelKey, MessageQueues>::iterator pair, std::shared_ptr<SentMessage> sent, Duration at);
  void serve(int link);
  void carry(const NetworkEvent& event);
  void leave(const MessageTransfer& travel);
  void arrive(const NetworkEvent& event);
  void meet(std::map<ChannelKey, MessageQueues>::iterator at);
  void take(const Delivery& taking);

  std::mt19937_64 random_;
  bool has_data_;
  bool is_closed_ = false;
  Duration now_{};
  std::optional<Fabric> fabric_;
  std::vector<SimulatedMember> members_;
  std::map<ChannelKey, MessageQueues> pairs_;
  std::priority_queue<NetworkEvent, std::vector<NetworkEvent>, std::greater<>> events_;
  std::uint64_t order_ = 0;
  // Queues messages at the first link of their path. Those between two members follow each other, as on a connection.
  // Connections take turns for each packet.
  struct LinkQueue {
    std::map<std::pair<int, int>, std::deque<std::shared_ptr<MessageTransfer>>> connections;  // by source and target
    std::deque<std::pair<int, int>> turns;                                                    // of all connections
    bool is_due = false;
  };
  std::map<int, LinkQueue> sources_;
  std::vector<int> woken_;
  std::uint64_t messages_ = 0;
  std::uint64_t network_bytes_ = 0;
};

}  // namespace lockstep::simulated
