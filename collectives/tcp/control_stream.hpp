// SPDX-License-Identifier: Apache-2.0
// Carries control messages between two ranks, and the messages of exchanges, on one connection beside the lanes.
// Messages of exchanges match by their call tags, in any order. Short ones wait here until they are wanted. A long one
// is offered first, and its data comes once it is wanted.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/tcp/lane_stream.hpp"

namespace lockstep::tcp {

// Sends and receives frames without blocking. One thread at a time may use it.
class ControlStream {
 public:
  void open(Descriptor socket) { socket_.open(std::move(socket)); }
  const Descriptor& socket() const { return socket_.descriptor(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  // True if the kernel lacks memory for a message at the moment.
  bool is_short() const { return socket_.is_short(); }
  void close() { socket_.close(); }
  bool has_unsent() const { return !outgoing_.empty(); }
  // True if the other rank has said that it leaves.
  bool has_farewell() const { return has_farewell_; }

  // Post a control message, a farewell, a send or a receive; flush() and receive() do the work.
  void post_control(Bytes message);
  void post_farewell() { put({FrameKind::farewell, 0, 0, 0}, {}); }
  void post_send(const PostedSend& sending);
  void post_receive(const PostedReceive& want);

  // Says how far receive() or flush() came.
  struct ControlProgress {
    bool is_over = false;               // the connection has ended
    int error = 0;                      // the errno of the end; 0: the other side has closed
    std::optional<BadMemory> bad = {};  // set if the error is EFAULT
  };
  // Reads as much as it can without blocking, and appends control messages to `messages`.
  ControlProgress receive(std::vector<Bytes>& messages);
  // Writes as much as it can without blocking.
  ControlProgress flush();
  // Tells that a message has another length than its receive.
  struct LengthMismatch {
    std::uint64_t sent;
    std::uint64_t wanted;
  };
  const std::optional<LengthMismatch>& length_mismatch() const { return length_mismatch_; }
  // Drops all that is posted, and uses its memory no more. It sends queued messages to their end from a copy.
  void drop_posted();
  // Gives away the connection, with the bytes that are not yet sent.
  std::pair<Descriptor, Bytes> release();

 private:
  // Names the content of a frame: a control message, a whole message, or the farewell. For a long message: its offer,
  // the request for its data, or the data.
  enum class FrameKind : std::uint32_t { control, whole, offer, grant, data, farewell };
  struct FrameHeader {
    FrameKind kind;
    std::uint32_t number;  // of an offered message
    std::uint64_t call_tag;
    std::uint64_t bytes;
  };
  // Holds a frame to send, with memory of its own or of the caller.
  struct OutgoingFrame {
    FrameHeader frame;
    Bytes own;
    const std::byte* from = nullptr;  // the caller's memory, used instead of `own`
    PendingCounts* left = nullptr;
    std::size_t payload() const { return from != nullptr ? frame.bytes : own.size(); }
    const std::byte* data() const { return from != nullptr ? from : own.data(); }
  };
  // Holds a message that nobody has wanted yet, or the offer of one.
  struct UnexpectedMessage {
    FrameHeader frame;
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

  void put(const FrameHeader& frame, Bytes own) { outgoing_.push_back({frame, std::move(own)}); }
  BadMemory unwritable() const;
  // Start and finish the body of a frame.
  void begin_body();
  void end_body(std::vector<Bytes>& messages);
  // Gives a message to the receive that wants it, or keeps it.
  void arrived(UnexpectedMessage early);
  // Completes a receive from a message that is here, or requests the data of an offer.
  void match(const PostedReceive& want, UnexpectedMessage& early);
  // Queues the data that the other rank requested.
  void grant(std::uint32_t number);

  StreamSocket socket_;
  Queue<OutgoingFrame> outgoing_;
  std::size_t sent_ = 0;  // of the first frame, with its header
  Bytes header_bytes_;    // as much of a header as has come
  FrameHeader header_{};
  bool is_in_body_ = false;
  Bytes body_;
  std::byte* into_ = nullptr;  // the caller's memory for the body; null: body_
  std::size_t received_ = 0;   // bytes of the body
  std::vector<PostedReceive> receives_;
  std::vector<UnexpectedMessage> unexpected_;
  std::vector<OfferedSend> offered_;
  std::vector<GrantedReceive> granted_;
  std::uint32_t last_number_ = 0;
  std::optional<LengthMismatch> length_mismatch_;
  bool has_farewell_ = false;
  bool is_wrong_ = false;  // the other side broke the protocol
};

}  // namespace lockstep::tcp
