// SPDX-License-Identifier: Apache-2.0
// Defines the interface by which engines exchange the messages of a round, and control messages beside the data. It
// costs one virtual call per round, and only sleep() may block.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "topology/base/bytes.hpp"

namespace lockstep {

// Describes one message to send. It does not own the memory.
struct SendDescriptor {
  int peer;
  const void* data;
  std::size_t bytes;
};

// Describes one message to receive, and the exact length that is expected. It does not own the memory.
struct ReceiveDescriptor {
  int peer;
  void* data;
  std::size_t bytes;
};

// Says which messages belong together. Messages of one lane match in the order of their posting, if their call tags are
// equal. A collective's call tag is a hash of all calls so far, so messages of different calls never match.
//
// Not all members take part in a point-to-point message, so they cannot agree on a lane. Rounds with `is_message` match
// all rounds of messages with the same call tag, on any lane. Such call tags come from message tags, and such lanes are
// numbered from lanes() upward.
struct RoundTag {
  int lane = 0;
  std::uint32_t call_tag = 0;
  bool is_message = false;
};

// Tells how an attempt to receive a message ended: it is done, or nothing has come from that member, or the message
// must be posted.
enum class TryResult : std::uint8_t { done, nothing_came, needs_lane };

// Carries the messages of one member of a communicator. One thread uses it at a time, except as can_sleep_beside()
// allows.
class Transport {
 public:
  virtual ~Transport() = default;

  // Returns this member's rank among the size() members of the communicator.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // Returns the number of lanes of collective calls. Each lane may have one posted round at a time, and so may the
  // lanes beyond, which serve point-to-point messages.
  virtual int lanes() const = 0;
  // Returns a limit, at least 32. Call tags of point-to-point messages are below it, and the transport tells all of
  // them apart.
  virtual std::uint32_t message_tags() const = 0;
  // Returns a number that differs from those of earlier transports whose messages could still arrive here.
  virtual std::uint32_t generation() const { return 0; }

  // Begins all messages of one round. The caller keeps the memory until done(lane) returns true. Does not allocate if
  // the lane had a round of as many messages before.
  virtual void post(RoundTag round_tag, std::span<const SendDescriptor> sends,
                    std::span<const ReceiveDescriptor> receives) = 0;
  // Try to send or receive a point-to-point message at once, without a lane. If it is not done, nothing has happened.
  // No earlier message to or from that peer may be unposted. `is_exchanged`: the peer probably sends one at this time,
  // too.
  virtual bool try_send(int /*peer*/, std::uint32_t /*call_tag*/, const void* /*data*/, std::size_t /*bytes*/,
                        bool /*is_exchanged*/) {
    return false;
  }
  virtual TryResult try_receive(int /*peer*/, std::uint32_t /*call_tag*/, void* /*data*/, std::size_t /*bytes*/) {
    return TryResult::needs_lane;
  }
  // Returns true if all messages of the lane's round are complete. Throws Error mismatch if one arrived with another
  // length than expected.
  virtual bool done(int lane) = 0;
  // Gives up all posted messages after a failure, so that their memory is not used any more. Returns false if some
  // cannot be called back: their memory must then stay until the program ends.
  virtual bool abandon() = 0;

  // Sends a control message. Messages between two members stay in order and are never lost.
  virtual void send_control(int peer, Bytes bytes) = 0;
  // Returns true if all control messages to this peer arrive without further help of this member.
  virtual bool is_control_sent(int /*peer*/) { return true; }
  // Holds a received control message and its sender.
  struct ReceivedControl {
    int peer;
    Bytes bytes;
  };
  // Returns the next control message; nothing if none has come.
  virtual std::optional<ReceivedControl> receive_control() = 0;

  // Sleeps until something may have arrived, for at most that time. May return early.
  virtual void sleep(std::int64_t nanoseconds) = 0;
  // Returns true if one thread may sleep while another thread calls any other function.
  virtual bool can_sleep_beside() const { return false; }
  // Sends a control message to all other members.
  virtual void send_control_to_all(const Bytes& bytes) {
    for (int i = 1; i < size(); ++i) send_control((rank() + i) % size(), bytes);
  }
  // Describes the knowledge about a member. `silent`: its host or the connection was given up, but the member may live.
  // `ended`: the member has left or its process has ended, and all of its messages can be received.
  enum class PeerState : std::uint8_t { reachable, silent, ended };
  // Returns the state of a member, as far as it is known.
  virtual PeerState peer_state(int /*peer*/) { return PeerState::reachable; }
  // Returns true if regroup() works.
  virtual bool can_regroup() const { return false; }
  // Reports that this transport has been given up. Control messages from now on are those of the surviving members.
  virtual void begin_regrouping() {}
  // Returns a new transport among these members, in this order, without asking them. All of them make it, with the same
  // number. It also works if this transport has been given up. Returns null if it cannot regroup.
  virtual std::unique_ptr<Transport> regroup(std::span<const int> /*members*/, std::uint64_t /*number*/) {
    return nullptr;
  }
  // Tells the members that could wait for this one that it is about to leave. Its silence is no failure after that.
  // Sends nothing if `leave_message` is empty. Does not block.
  virtual void leave(const Bytes& leave_message) {
    if (!leave_message.empty()) send_control_to_all(leave_message);
  }
};

}  // namespace lockstep
