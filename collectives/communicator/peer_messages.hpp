// SPDX-License-Identifier: Apache-2.0
// Sends messages between two members, each as a schedule of one message.
//
// A CommunicatorCore owns it. Messages need no agreement of other members, so their plans are made without the planner.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <tuple>
#include <vector>

#include "collectives/communicator/call_request.hpp"
#include "collectives/communicator/pending_calls.hpp"

namespace lockstep::detail {

// Checks, plans and starts messages. It keeps their plans, because programs repeat messages.
class PeerMessages {
 public:
  PeerMessages(CommunicatorMember& member, PendingCalls& pending_calls)
      : member_(member), pending_calls_(pending_calls) {}

  // Throws Error usage for a wrong rank, tag or buffer.
  void check(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives, const Origin& origin) const;
  // Moves checked messages that can be moved at once. Returns true if those were all. Otherwise begin() must follow. If
  // `waits` is true, it looks for messages to receive a little longer.
  bool try_now(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives, bool waits,
               const Origin& origin);
  // Starts the messages that try_now() has not moved in a slot.
  void begin(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives, PendingCall& slot);

 private:
  void check_one(const PeerMessage& message, bool written, const Origin& origin) const;
  void begin_one(const PeerMessage& message, bool sends, PendingCall& slot);
  void reserve_packed(std::span<const PeerMessage> sends, std::span<const PeerMessage> receives);
  MessageAttempt attempt_of(const PeerMessage& message);
  void pack(const PeerMessage& message, const MessageAttempt& attempt);
  void unpack(const PeerMessage& message, const MessageAttempt& attempt);
  std::uint32_t tag_of(const PeerMessage& message) const;
  // Names a kind of message: its peer, tag, direction and length.
  using MessageKey = std::tuple<int, std::uint32_t, bool, std::size_t>;
  // Returns the place of a kind among those that were begun before.
  MessageKey& begun_place(const MessageKey& key);
  bool was_begun(const PeerMessage& message, bool sends);
  std::shared_ptr<const Plan> plan_of(const PeerMessage& message, bool sends);

  CommunicatorMember& member_;
  PendingCalls& pending_calls_;
  std::vector<MessageAttempt> send_attempts_;  // Hold those of the last try_now(), or nothing if it tried none.
  std::vector<MessageAttempt> receive_attempts_;
  std::vector<std::byte> packed_;  // Holds the strided data of these.
  std::map<MessageKey, std::shared_ptr<const Plan>> plans_;
  std::array<MessageKey, 64> begun_ = {};  // Holds kinds that have a plan, so that later ones need no memory.
};

}  // namespace lockstep::detail
