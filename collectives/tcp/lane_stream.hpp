// SPDX-License-Identifier: Apache-2.0
// Carries the messages of one lane between two ranks, on a connection of its own. Messages match in the order of their
// posting. So a message that nobody wants yet needs no buffer here: it stays in the kernel, or with its sender.
#pragma once

#include <cstring>
#include <optional>
#include <span>

#include "collectives/tcp/queue.hpp"
#include "collectives/tcp/socket.hpp"
#include "topology/base/mapped.hpp"

namespace lockstep::tcp {

// Stands before every message on the wire.
struct LaneHeader {
  std::uint64_t call_tag;
  std::uint64_t bytes;
};

// Counts the messages of a lane's round that are still under way. Streams count down as messages complete.
struct PendingCounts {
  std::size_t sends = 0;
  std::size_t receives = 0;
  bool none() const { return sends == 0 && receives == 0; }
};

// Describes a posted receive. The memory and `left` belong to the caller, and stay until the count drops.
struct PostedReceive {
  std::uint64_t call_tag;
  std::byte* into;
  std::size_t bytes;
  PendingCounts* left;
};

// Describes a posted send, under the same rules as PostedReceive.
struct PostedSend {
  LaneHeader head;
  const std::byte* from;
  PendingCounts* left;
};

// Names the memory of a message that the kernel could not read or write.
struct BadMemory {
  const void* at;
  std::size_t bytes;
  Access access;
  const PendingCounts* left;  // the round that posted it
};

// Sends and receives the messages of one lane, without blocking. One thread at a time may use it.
class LaneStream {
 public:
  // Takes the first bytes of a message, before its length is known. All streams of a thread share one window.
  using Window = std::span<std::byte>;

  // Post a receive or a send; receive() and flush() do the work.
  void want(const PostedReceive& want) { wants_.push_back(want); }
  void send(const PostedSend& sending) { sending_.push_back(sending); }
  // Takes ownership of the connection; take() gives it away.
  void open(Descriptor socket) { socket_ = std::move(socket); }
  Descriptor take() { return std::move(socket_); }
  const Descriptor& socket() const { return socket_; }
  bool is_open() const { return static_cast<bool>(socket_); }
  bool wants() const { return !wants_.empty(); }
  bool is_sending() const { return !sending_.empty(); }
  // True if the next message belongs to another call, so there is nothing to wait for.
  bool is_stuck() const { return is_stuck_; }
  // Drops all posted sends and receives.
  void forget();

  // Says how far receive() or flush() came. If a message has another length than its receive, `length` and `wanted` are
  // set.
  struct LaneProgress {
    bool moved = false;    // some bytes moved
    bool is_over = false;  // the connection has ended
    int error = 0;         // the errno of the end; 0: the other side has closed
    bool has_other_length = false;
    std::uint64_t length = 0;
    std::uint64_t wanted = 0;
    std::optional<BadMemory> bad = {};  // set if the error is EFAULT
  };
  // Move as many bytes as they can without blocking.
  LaneProgress receive(Window window);
  LaneProgress flush();

 private:
  std::size_t take_kept(std::span<std::byte> into);
  // Reads kept bytes first, then the socket.
  IoResult read_some(std::span<std::byte> into);
  // Tells the kernel how many bytes should wake a sleeping thread.
  void wake_from(std::size_t missing);
  BadMemory unreadable() const;
  bool begin_message(std::span<const std::byte> bytes, LaneProgress& outcome);

  Descriptor socket_;
  Queue<PostedReceive> wants_;
  Queue<PostedSend> sending_;
  std::size_t sent_ = 0;  // of the first message, with its header
  std::array<std::byte, sizeof(LaneHeader)> head_{};
  std::size_t head_bytes_ = 0;  // bytes of the header that are here
  bool in_message_ = false;
  std::size_t received_ = 0;  // bytes of the first wanted message
  // Holds bytes that came behind the header of a message that nobody wants yet.
  Bytes kept_;
  bool is_stuck_ = false;
  int wakes_from_ = 1;  // bytes in the kernel that wake a sleeper
};

}  // namespace lockstep::tcp
