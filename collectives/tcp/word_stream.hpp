// SPDX-License-Identifier: Apache-2.0
// Two members have one connection beside the lanes. It carries control messages, and the messages of rounds of
// exchanges, which match by their call tags in whatever order they are wanted. Short ones are kept here until then; of
// a long one only its length comes, and the data when it is wanted.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "collectives/tcp/lane_stream.hpp"

namespace lockstep::tcp {

class WordStream {
 public:
  void open(Descriptor socket) { socket_ = std::move(socket); }
  const Descriptor& socket() const { return socket_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  void close() { socket_.close(); }
  bool has_unsent() const { return !leaving_.empty(); }
  bool has_heard_farewell() const { return has_heard_farewell_; }

  void say(Bytes word);
  void say_farewell() { put({FrameKind::farewell, 0, 0, 0}, {}); }
  void send(const PostedSend& sending);
  void want(const PostedReceive& want);

  struct WordProgress {
    bool is_over = false;
    int error = 0;
    std::optional<BadMemory> bad = {};  // then the error is EFAULT
  };
  // Reads as far as it goes. Control messages go to `words`.
  WordProgress receive(std::vector<Bytes>& words);
  WordProgress flush();
  // A message that is wanted has another length.
  struct LengthMismatch {
    std::uint64_t sent;
    std::uint64_t wanted;
  };
  const std::optional<LengthMismatch>& other_length() const { return other_length_; }
  // The memory of what is posted is not used any more: what is half sent is sent to its end from a copy.
  void forget();
  // For who takes it over: what is not gone yet.
  std::pair<Descriptor, Bytes> take();

 private:
  enum class FrameKind : std::uint32_t { word, whole, offer, grant, data, farewell };
  struct FrameHeader {
    FrameKind kind;
    std::uint32_t number;  // of a message that is offered
    std::uint64_t call_tag;
    std::uint64_t bytes;
  };
  struct OutgoingFrame {
    FrameHeader frame;
    Bytes own;
    const std::byte* from = nullptr;  // instead: the caller's
    PendingCounts* left = nullptr;
    std::size_t payload() const { return from != nullptr ? frame.bytes : own.size(); }
    const std::byte* data() const { return from != nullptr ? from : own.data(); }
  };
  // What nobody has wanted yet: here, or with who offers it.
  struct UnexpectedMessage {
    FrameHeader frame;
    Bytes here;
  };
  struct OfferedSend {
    std::uint32_t number;
    PostedSend sending;
  };
  struct GrantedReceive {
    std::uint32_t number;
    PostedReceive want;  // without memory: given up
  };

  void put(const FrameHeader& frame, Bytes own) { leaving_.push_back({frame, std::move(own)}); }
  BadMemory unwritable() const;
  void begin_body();
  void end_body(std::vector<Bytes>& words);
  void arrived(UnexpectedMessage early);
  void give(const PostedReceive& want, UnexpectedMessage& early);
  void grant(std::uint32_t number);

  Descriptor socket_;
  Queue<OutgoingFrame> leaving_;
  std::size_t sent_ = 0;  // of the first one, with its frame
  Bytes frame_;           // as far as it has come
  FrameHeader coming_{};
  bool in_body_ = false;
  Bytes body_;
  std::byte* into_ = nullptr;  // the caller's, instead
  std::size_t received_ = 0;   // of the body
  std::vector<PostedReceive> wants_;
  std::vector<UnexpectedMessage> early_;
  std::vector<OfferedSend> offered_;
  std::vector<GrantedReceive> granted_;
  std::uint32_t last_number_ = 0;
  std::optional<LengthMismatch> other_length_;
  bool has_heard_farewell_ = false;
  bool is_wrong_ = false;  // what came is none of these
};

}  // namespace lockstep::tcp
