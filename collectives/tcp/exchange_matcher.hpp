// SPDX-License-Identifier: Apache-2.0
// Matches the messages of exchanges on one control connection by their call tags, in any order. Short ones wait here
// until they are wanted. A long one is offered first, and its data comes once it is wanted.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "collectives/tcp/control_frames.hpp"

namespace lockstep::tcp {

// Queues frames, and takes in those that have come. One thread at a time may use it.
class ExchangeMatcher {
 public:
  static constexpr std::size_t max_whole_bytes = 64U << 10U;  // longer messages are offered first

  // Queues its frames at `outgoing`, which outlives this object.
  explicit ExchangeMatcher(FrameQueue& outgoing) : outgoing_(outgoing) {}

  void post_send(const PostedSend& sending);
  void post_receive(const PostedReceive& want);
  // Gives a whole message, or the offer of one, to the receive that wants it, or keeps it.
  void take_message(const FrameHeader& header, Bytes here);
  // Queues the data that the other rank requested.
  void grant(std::uint32_t number);
  // Returns the receive for requested data; null if nobody requested it. Its memory is null if it was given up.
  const PostedReceive* requested(std::uint32_t number) const;
  // Completes that receive.
  void end_data(std::uint32_t number);
  // Tells that a message has another length than its receive.
  struct LengthMismatch {
    std::uint64_t sent;
    std::uint64_t wanted;
  };
  const std::optional<LengthMismatch>& length_mismatch() const { return length_mismatch_; }
  // Drops all that is posted, and uses its memory no more.
  void drop_posted();

 private:
  // Holds a message that nobody has wanted yet, or the offer of one.
  struct UnexpectedMessage {
    FrameHeader header;
    Bytes here;
  };
  // Remembers a send before its data is requested, and a receive afterwards.
  struct OfferedSend {
    std::uint32_t number;
    PostedSend sending;
  };
  struct GrantedReceive {
    std::uint32_t number;
    PostedReceive want;  // no memory: given up
  };

  // Completes a receive from a message that is here, or requests the data of an offer.
  void match(const PostedReceive& want, const FrameHeader& header, const Bytes& here);

  FrameQueue& outgoing_;
  std::vector<PostedReceive> receives_;
  std::vector<UnexpectedMessage> unexpected_;
  std::vector<OfferedSend> offered_;
  std::vector<GrantedReceive> granted_;
  std::uint32_t last_number_ = 0;
  std::optional<LengthMismatch> length_mismatch_;
};

}  // namespace lockstep::tcp
