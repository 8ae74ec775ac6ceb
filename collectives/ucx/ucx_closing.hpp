// SPDX-License-Identifier: Apache-2.0
// Holds the remains of transports that have ended. A transport's workers stay until all others have ended theirs.
// Closing a connection with unread data would destroy data that the other side has not read. The workers also make
// progress, because the others' last connections may wait for an answer.
#pragma once

#include <array>
#include <chrono>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "collectives/ucx/ucx_worker.hpp"
#include "topology/base/progress_hooks.hpp"
#include "topology/secret/secret.hpp"

namespace lockstep::ucx {

// Begins each message from one member to another, and proves its source.
using MessageToken = std::array<std::byte, 16>;

// Stands before every message. All members run the same build on machines of one kind, which the start of a session
// checks.
struct MessageHeader {
  MessageToken token;
  std::uint32_t source;
  std::uint32_t call_tag;
  std::uint64_t channel;
};
static_assert(std::has_unique_object_representations_v<MessageHeader>);

// Returns the bytes of the header itself, not a copy.
inline std::span<const std::byte> bytes_of(const MessageHeader& head) { return std::as_bytes(std::span(&head, 1)); }

// Returns the header of a message, or nothing if its token does not prove its source.
inline std::optional<MessageHeader> opened(std::span<const std::byte> bytes, std::span<const MessageToken> theirs) {
  MessageHeader head;
  if (bytes.size() != sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);  // it may be unaligned
  if (head.source >= theirs.size() || !is_same(head.token, theirs[head.source])) return std::nullopt;
  return head;
}

// Mark control messages in the place of the call tag.
inline constexpr std::uint32_t ordinary = 0;
inline constexpr std::uint32_t greeting = 1;
inline constexpr std::uint32_t farewell = 2;

// Holds a control message until UCX has sent it.
struct UcxControlMessage {
  MessageHeader head;
  Bytes bytes;
  UcxOperation operation;
};

// Is the rest of one transport that has ended.
class ClosingTransport {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // Takes the workers, the last control messages in `telling`, and the members that have left already. `data` may be
  // null. No caller's memory may be under way.
  ClosingTransport(std::unique_ptr<Worker> words, std::unique_ptr<Worker> data, std::list<UcxControlMessage> telling,
                   std::vector<MessageToken> theirs, std::vector<bool> has_left);

  // Moves both workers.
  void progress();
  bool is_sent() const { return !words_->is_flushing() && (!data_ || !data_->is_flushing()); }
  // True if all is sent, and all others have ended their transports.
  bool is_over() const;
  // True if all is sent, and the others that have not ended are gone or have had 5 s. The object is then kept until the
  // process ends; see Worker::give_up.
  bool is_in_vain(Time now) const;

 private:
  std::list<UcxControlMessage> telling_;  // UCX points to these
  std::vector<MessageToken> theirs_;
  std::vector<bool> has_left_;
  std::optional<Time> sent_at_;
  std::unique_ptr<Worker> words_;
  std::unique_ptr<Worker> data_;
};

// Holds the ended transports of a process. They make progress whenever the thread that ended the last of them waits.
class ClosingTransports {
 public:
  ClosingTransports() = default;
  // Waits at most 500 ms for others that still need a transport, and keeps the rest until the process ends.
  ~ClosingTransports();
  ClosingTransports(const ClosingTransports&) = delete;
  ClosingTransports& operator=(const ClosingTransports&) = delete;

  // Takes a transport, and waits at most 50 ms until its messages have left this process.
  void add(std::unique_ptr<ClosingTransport> one);

 private:
  // True if there is anything left to move, or another thread is moving it.
  bool move();

  std::mutex mutex_;
  std::list<std::unique_ptr<ClosingTransport>> all_;
  ProgressHook hook_{[this] { move(); }};
};

}  // namespace lockstep::ucx
