// SPDX-License-Identifier: Apache-2.0
// Carries control messages between two ranks, and point-to-point messages, on one connection beside the lanes.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "collectives/tcp/control_frames.hpp"
#include "collectives/tcp/exchange_matcher.hpp"
#include "collectives/tcp/lane_stream.hpp"

namespace lockstep::tcp {

// Sends and receives frames without blocking. One thread at a time may use it.
class ControlStream {
 public:
  ControlStream() = default;
  ~ControlStream() = default;
  ControlStream(const ControlStream&) = delete;
  ControlStream& operator=(const ControlStream&) = delete;

  void open(Descriptor socket) { socket_.open(std::move(socket)); }
  const StreamSocket& socket() const { return socket_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  void close() { socket_.close(); }
  bool has_unsent() const { return !outgoing_.is_empty(); }
  // True if the other rank has said that it leaves.
  bool has_farewell() const { return has_farewell_; }

  // Post a control message, a farewell, a send or a receive; flush() and receive() do the work.
  void post_control(Bytes message);
  void post_farewell() { outgoing_.put({FrameKind::farewell, 0, 0, 0}, Bytes()); }
  void post_send(const PostedSend& sending) { exchanges_.post_send(sending); }
  void post_receive(const PostedReceive& want) { exchanges_.post_receive(want); }

  // Reads as much as it can without blocking, and appends control messages to `messages`.
  ControlProgress receive(std::vector<Bytes>& messages);
  // Writes as much as it can without blocking.
  ControlProgress flush() { return is_open() ? outgoing_.flush(socket_) : ControlProgress(); }
  const std::optional<ExchangeMatcher::LengthMismatch>& length_mismatch() const { return exchanges_.length_mismatch(); }
  // Drops all that is posted, and uses its memory no more. It sends queued messages to their end from a copy.
  void drop_posted();
  // Gives away the connection, with the bytes that are not yet sent.
  std::pair<Descriptor, Bytes> release();

 private:
  // Start and finish the body of a frame.
  void begin_body();
  void end_body(std::vector<Bytes>& messages);

  StreamSocket socket_;
  FrameQueue outgoing_;
  ExchangeMatcher exchanges_{outgoing_};
  Bytes header_bytes_;  // as much of a header as has come
  FrameHeader header_{};
  bool is_in_body_ = false;
  Bytes body_;
  std::byte* into_ = nullptr;  // the caller's memory for the body; null: body_
  std::size_t received_ = 0;   // bytes of the body
  bool has_farewell_ = false;
  bool is_wrong_ = false;  // the other side broke the protocol
};

}  // namespace lockstep::tcp
