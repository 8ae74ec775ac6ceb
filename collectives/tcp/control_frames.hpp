// SPDX-License-Identifier: Apache-2.0
// Describes the frames of control connections, and holds those that are to be sent.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "collectives/tcp/lane_stream.hpp"

namespace lockstep::tcp {

// Names the content of a frame: a control message, a whole message, or the farewell. For a long message: its offer,
// the request for its data, or the data.
enum class FrameKind : std::uint32_t { control, whole, offer, grant, data, farewell };

// Stands before every frame on the wire.
struct FrameHeader {
  FrameKind kind;
  std::uint32_t number;  // of an offered message
  std::uint64_t call_tag;
  std::uint64_t bytes;
};

// Says how far reading or writing came.
struct ControlProgress {
  bool is_over = false;               // the connection has ended
  int error = 0;                      // the errno of the end; 0: the other side has closed
  std::optional<BadMemory> bad = {};  // set if the error is EFAULT
};

// Holds frames in the order in which they go. One thread at a time may use it.
class FrameQueue {
 public:
  bool is_empty() const { return frames_.empty(); }
  // Queue a frame with memory of its own, or with the caller's, which stays until the count of sends drops.
  void put(const FrameHeader& header, Bytes own) { frames_.push_back({header, std::move(own)}); }
  void put(const FrameHeader& header, const PostedSend& sending) {
    frames_.push_back({header, {}, sending.from, sending.left});
  }
  // Writes as much as it can without blocking.
  ControlProgress flush(StreamSocket& socket);
  // Sends the queued frames to their end from copies, and uses the caller's memory no more.
  void drop_posted();
  // Returns the bytes that are not yet sent.
  Bytes rest() const;

 private:
  struct OutgoingFrame {
    FrameHeader header;
    Bytes own;
    const std::byte* from = nullptr;  // the caller's memory, used instead of `own`
    PendingCounts* left = nullptr;
    std::size_t payload() const { return from != nullptr ? header.bytes : own.size(); }
    const std::byte* data() const { return from != nullptr ? from : own.data(); }
  };

  Queue<OutgoingFrame> frames_;
  std::size_t sent_ = 0;  // of the first frame, with its header
};

}  // namespace lockstep::tcp
