// SPDX-License-Identifier: Apache-2.0
// Threads that are members of one communicator share a ring of messages for every ordered pair that talks, and a box
// for control messages and a bell for every member. Everything that one thread looks at while another changes it is an
// atomic or under a mutex. Only the local transport uses it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/engine/transport.hpp"

namespace lockstep::local {

inline constexpr std::size_t cache_line = 64;

enum class LocalMessageState : std::uint32_t { posted, copying, done, withdrawn };

// A message on its way. Its sender fills it in, and later sees that it is done or takes it back; its receiver copies
// from the sender's memory.
struct alignas(cache_line) LocalMessage {
  std::atomic<LocalMessageState> state{LocalMessageState::done};
  std::uint64_t key = 0;  // equal for messages that belong together
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// One thread puts in, one thread takes out.
class MessageRing {
 public:
  bool push(LocalMessage* cell) {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == cells_.size()) return false;
    cells_[tail % cells_.size()] = cell;
    tail_.store(tail + 1, std::memory_order_seq_cst);  // before the look at the receiver's bell
    return true;
  }
  LocalMessage* pop() {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return nullptr;
    LocalMessage* cell = cells_[head % cells_.size()];
    head_.store(head + 1, std::memory_order_release);
    return cell;
  }
  // For the receiver.
  bool has_any() const { return head_.load(std::memory_order_relaxed) != tail_.load(std::memory_order_seq_cst); }

 private:
  alignas(cache_line) std::atomic<std::uint32_t> head_{0};
  alignas(cache_line) std::atomic<std::uint32_t> tail_{0};
  std::array<LocalMessage*, 64> cells_ = {};
};

// Whoever brings something rings, which costs nothing unless the other sleeps.
class WakeBell {
 public:
  // After what was brought has been stored (seq_cst).
  void ring() {
    if (asleep_.load(std::memory_order_seq_cst) && asleep_.exchange(false, std::memory_order_seq_cst)) wake();
  }
  // Unless `anything` is already there: whatever comes later rings.
  template <class Anything>
  void sleep(std::int64_t nanoseconds, const Anything& anything) {
    const std::uint32_t before = rings_.load(std::memory_order_acquire);
    asleep_.store(true, std::memory_order_seq_cst);
    if (!anything()) wait(before, nanoseconds);
    asleep_.store(false, std::memory_order_relaxed);
  }

 private:
  void wake();
  void wait(std::uint32_t before, std::int64_t nanoseconds);

  std::atomic<bool> asleep_{false};
  std::atomic<std::uint32_t> rings_{0};
};

class MessageBox {
 public:
  void put(Transport::SmallMessage heard);
  std::optional<Transport::SmallMessage> take();
  bool has_any() const { return count_.load(std::memory_order_seq_cst) > 0; }

 private:
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  std::deque<Transport::SmallMessage> words_;
};

// What belongs to a member and may be looked at by others even when it has gone.
struct alignas(cache_line) LocalEndpoint {
  WakeBell bell;
  MessageBox box;
  std::deque<LocalMessage> cells;  // of the messages that it sent
  std::atomic<bool> has_left{false};
};

class LocalHub {
 public:
  explicit LocalHub(int size);
  ~LocalHub();
  LocalHub(const LocalHub&) = delete;
  LocalHub& operator=(const LocalHub&) = delete;

  int size() const { return static_cast<int>(endpoints_.size()); }
  LocalEndpoint& endpoint(int member) { return endpoints_[static_cast<std::size_t>(member)]; }
  // Of the sender, who makes it when it first sends.
  MessageRing& ring_to_send(int sender, int receiver);
  // Nothing yet if it was never sent to.
  MessageRing* ring_to_receive(int sender, int receiver) {
    return slot(sender, receiver).load(std::memory_order_acquire);
  }
  // The one in which these of its members meet, under that number.
  std::shared_ptr<LocalHub> side(std::span<const int> members, std::uint64_t number);

 private:
  std::atomic<MessageRing*>& slot(int sender, int receiver) {
    return rings_[static_cast<std::size_t>(sender) * endpoints_.size() + static_cast<std::size_t>(receiver)];
  }

  std::deque<LocalEndpoint> endpoints_;
  std::vector<std::atomic<MessageRing*>> rings_;
  std::mutex mutex_;
  struct SubgroupHub {
    std::shared_ptr<LocalHub> hub;
    std::size_t takers = 0;
  };
  std::map<std::pair<std::vector<int>, std::uint64_t>, SubgroupHub> sides_;  // that not all have taken
};

}  // namespace lockstep::local
