// SPDX-License-Identifier: Apache-2.0
// The messages of one lane between two members, on a connection of their own: each side's come in the order in which
// they were posted, so nothing is kept here that nobody wants yet; it stays in the kernel, and in time with its sender.
#pragma once

#include <cstring>
#include <optional>
#include <span>

#include "collectives/tcp/queue.hpp"
#include "collectives/tcp/socket.hpp"
#include "topology/base/mapped.hpp"

namespace lockstep::tcp {

// Before every message.
struct LaneHeader {
  std::uint64_t call_tag;
  std::uint64_t bytes;
};

// What a round of a lane has posted, and is not through.
struct PendingCounts {
  std::size_t sends = 0;
  std::size_t receives = 0;
  bool none() const { return sends == 0 && receives == 0; }
};

struct PostedReceive {
  std::uint64_t call_tag;
  std::byte* into;
  std::size_t bytes;
  PendingCounts* left;
};

struct PostedSend {
  LaneHeader head;
  const std::byte* from;
  PendingCounts* left;
};

// The memory of a message that the kernel could not read or write.
struct BadMemory {
  const void* at;
  std::size_t bytes;
  Access access;
  const PendingCounts* left;  // of the round that has posted it
};

class LaneStream {
 public:
  // Where what comes is looked at first: shared by all streams of a thread.
  using Window = std::span<std::byte>;

  void want(const PostedReceive& want) { wants_.push_back(want); }
  void send(const PostedSend& sending) { sending_.push_back(sending); }
  void open(Descriptor socket) { socket_ = std::move(socket); }
  Descriptor take() { return std::move(socket_); }
  const Descriptor& socket() const { return socket_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  bool wants() const { return !wants_.empty(); }
  bool is_sending() const { return !sending_.empty(); }
  // The next message is another call's: there is nothing to wait for.
  bool is_stuck() const { return is_stuck_; }
  // What is posted is given up.
  void forget();

  // As far as it goes. Where a message has another length than is wanted, `length` says which.
  struct LaneProgress {
    bool moved = false;
    bool is_over = false;
    int error = 0;
    bool has_other_length = false;
    std::uint64_t length = 0;
    std::uint64_t wanted = 0;
    std::optional<BadMemory> bad = {};  // then the error is EFAULT
  };
  LaneProgress receive(Window window);
  LaneProgress flush();

 private:
  std::size_t take_kept(std::span<std::byte> into);
  IoResult read_some(std::span<std::byte> into);
  void wake_from(std::size_t missing);
  BadMemory unreadable() const;
  bool begin_message(std::span<const std::byte> bytes, LaneProgress& outcome);

  Descriptor socket_;
  Queue<PostedReceive> wants_;
  Queue<PostedSend> sending_;
  std::size_t sent_ = 0;  // of the first one, with its head
  std::array<std::byte, sizeof(LaneHeader)> head_{};
  std::size_t head_bytes_ = 0;  // of it that are here
  bool in_message_ = false;
  std::size_t received_ = 0;  // of the first one that is wanted
  Bytes kept_;                // came behind the head of a message that nobody wants yet
  bool is_stuck_ = false;
  int wakes_from_ = 1;  // bytes that are here
};

}  // namespace lockstep::tcp
