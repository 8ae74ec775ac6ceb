// SPDX-License-Identifier: Apache-2.0
// What is left of a transport that has ended. Its workers stay until all others have ended theirs, for who closes a
// connection with something unread in it takes away what the other side has not read either; and they go on, for the
// others' last connections may wait for an answer of theirs.
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

using MessageToken = std::array<std::byte, 16>;

// Before every message. Members run the same build on machines of one kind: checked when the session begins.
struct MessageHeader {
  MessageToken token;
  std::uint32_t source;
  std::uint32_t call_tag;
  std::uint64_t channel;
};
static_assert(std::has_unique_object_representations_v<MessageHeader>);

inline std::span<const std::byte> bytes_of(const MessageHeader& head) { return std::as_bytes(std::span(&head, 1)); }

// Nothing where it does not prove, by the token that each source has, who it is from.
inline std::optional<MessageHeader> opened(std::span<const std::byte> bytes, std::span<const MessageToken> theirs) {
  MessageHeader head;
  if (bytes.size() != sizeof head) return std::nullopt;
  std::memcpy(&head, bytes.data(), sizeof head);  // it may lie anywhere
  if (head.source >= theirs.size() || !is_same(head.token, theirs[head.source])) return std::nullopt;
  return head;
}

// Tags of control messages.
inline constexpr std::uint32_t ordinary = 0;
inline constexpr std::uint32_t greeting = 1;
inline constexpr std::uint32_t farewell = 2;

struct UcxControlMessage {
  MessageHeader head;
  Bytes bytes;
  UcxOperation operation;
};

class ClosingTransport {
 public:
  using Time = std::chrono::steady_clock::time_point;

  // `data` may be none; nothing of the caller's memory is under way. `telling` has the last control messages,
  // `has_left` the members that have said farewell already.
  ClosingTransport(std::unique_ptr<Worker> words, std::unique_ptr<Worker> data, std::list<UcxControlMessage> telling,
                   std::vector<MessageToken> theirs, std::vector<bool> has_left);

  void progress();
  bool is_sent() const { return !words_->is_flushing() && (!data_ || !data_->is_flushing()); }
  // All is sent, and all others have ended theirs.
  bool is_over() const;
  // All is sent, and those who have not ended theirs are gone, or have had long enough. It is kept then, as it is,
  // until the process ends: see Worker::give_up.
  bool is_in_vain(Time now) const;

 private:
  std::list<UcxControlMessage> telling_;  // UCX points to them
  std::vector<MessageToken> theirs_;
  std::vector<bool> has_left_;
  std::optional<Time> sent_at_;
  std::unique_ptr<Worker> words_;
  std::unique_ptr<Worker> data_;
};

// Those of a process. They move whenever the thread that ended the last of them waits.
class ClosingTransports {
 public:
  ClosingTransports() = default;
  // Waits a little for those who still need one.
  ~ClosingTransports();
  ClosingTransports(const ClosingTransports&) = delete;
  ClosingTransports& operator=(const ClosingTransports&) = delete;

  // Waits a moment for all that it has sent to leave this process.
  void add(std::unique_ptr<ClosingTransport> one);

 private:
  bool move();

  std::mutex mutex_;
  std::list<std::unique_ptr<ClosingTransport>> all_;
  ProgressHook hook_{[this] { move(); }};
};

}  // namespace lockstep::ucx
