// SPDX-License-Identifier: Apache-2.0
// Carries the messages of one lane between two ranks, on a connection of its own. Messages match in the order of their
// posting. So a message that nobody wants yet needs no buffer here: it stays in the kernel, or with its sender.
#pragma once

#include <cstring>
#include <optional>
#include <span>

#include "collectives/tcp/posted_messages.hpp"
#include "collectives/tcp/queue.hpp"
#include "collectives/tcp/socket.hpp"

namespace lockstep::tcp {

// Sends and receives the messages of one lane, without blocking. One thread at a time may use it.
class LaneStream {
 public:
  // Takes the first bytes of a message, before its length is known. All streams of a thread share one window.
  using Window = std::span<std::byte>;

  // Post a receive or a send; receive() and flush() do the work.
  void post_receive(const PostedReceive& want) { receives_.push_back(want); }
  void post_send(const PostedSend& sending) { sends_.push_back(sending); }
  // Takes ownership of the connection; release() gives it away.
  void open(Descriptor socket) { socket_.open(std::move(socket)); }
  Descriptor release() { return socket_.release(); }
  const Descriptor& socket() const { return socket_.descriptor(); }
  bool is_open() const { return static_cast<bool>(socket_); }
  // True if the kernel lacks memory for a message at the moment.
  bool is_short() const { return socket_.is_short(); }
  bool is_receiving() const { return !receives_.empty(); }
  bool is_sending() const { return !sends_.empty(); }
  // True if the next message belongs to another call, so there is nothing to wait for.
  bool is_stuck() const { return is_stuck_; }
  // Drops all posted sends and receives.
  void drop_posted();

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

  StreamSocket socket_;
  Queue<PostedReceive> receives_;
  Queue<PostedSend> sends_;
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
