// SPDX-License-Identifier: Apache-2.0
// Holds the shared state of threads that are members of one communicator. Each ordered pair of members that talks has a
// ring of messages. Each member has a box for control messages and a bell that wakes it. Data that one thread reads
// while another changes it is atomic or under a mutex. Only the local transport uses this file.
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

// Separates data of different threads, in bytes, so that they do not share a cache line.
inline constexpr std::size_t cache_line = 64;

// Tells how far a message is. `withdrawn` means that its sender took it back.
enum class LocalMessageState : std::uint32_t { posted, copying, done, withdrawn };

// Describes a message on its way. Its sender fills it in, and later sees that it is done or takes it back. Its receiver
// copies from the sender's memory. The sender's endpoint owns this object.
struct alignas(cache_line) LocalMessage {
  std::atomic<LocalMessageState> state{LocalMessageState::done};
  // Equals the key of the matching receive.
  std::uint64_t key = 0;
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// Queues up to 64 messages from one thread to another without locks. One thread pushes, and one thread pops.
class MessageRing {
 public:
  // Returns false if the ring is full. Only the sender calls this.
  bool push(LocalMessage* cell) {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == cells_.size()) return false;
    cells_[tail % cells_.size()] = cell;
    // The store must be visible before the sender reads the receiver's bell.
    tail_.store(tail + 1, std::memory_order_seq_cst);
    return true;
  }
  // Returns null if the ring is empty. Only the receiver calls this.
  LocalMessage* pop() {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return nullptr;
    LocalMessage* cell = cells_[head % cells_.size()];
    head_.store(head + 1, std::memory_order_release);
    return cell;
  }
  // Returns true if pop() would return a message. Only the receiver calls this.
  bool has_any() const { return head_.load(std::memory_order_relaxed) != tail_.load(std::memory_order_seq_cst); }

 private:
  alignas(cache_line) std::atomic<std::uint32_t> head_{0};
  alignas(cache_line) std::atomic<std::uint32_t> tail_{0};
  std::array<LocalMessage*, 64> cells_ = {};
};

// Wakes a sleeping member. A thread that brings a message rings, which costs nothing unless the member sleeps.
class WakeBell {
 public:
  // Wakes the member if it sleeps. The caller has stored its message before, with seq_cst.
  void ring() {
    if (asleep_.load(std::memory_order_seq_cst) && asleep_.exchange(false, std::memory_order_seq_cst)) wake();
  }
  // Sleeps until a ring or for that time. Does not sleep if `anything()` returns true; a later message rings.
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

// Holds a member's incoming control messages. Any thread may put; only the member takes.
class MessageBox {
 public:
  void put(Transport::ReceivedControl heard);
  // Returns the oldest message; nothing if the box is empty.
  std::optional<Transport::ReceivedControl> take();
  bool has_any() const { return count_.load(std::memory_order_seq_cst) > 0; }

 private:
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  std::deque<Transport::ReceivedControl> messages_;
};

// Holds a member's state that others may read even after the member has left.
struct alignas(cache_line) LocalEndpoint {
  WakeBell bell;
  MessageBox box;
  // Owns the messages that this member sent. A deque keeps their addresses.
  std::deque<LocalMessage> cells;
  std::atomic<bool> has_left{false};
};

// Connects the members of one communicator. Their transports share its ownership.
class LocalHub {
 public:
  explicit LocalHub(int size);
  ~LocalHub();
  LocalHub(const LocalHub&) = delete;
  LocalHub& operator=(const LocalHub&) = delete;

  int size() const { return static_cast<int>(endpoints_.size()); }
  // Returns the endpoint of a member, which the hub owns.
  LocalEndpoint& endpoint(int member) { return endpoints_[static_cast<std::size_t>(member)]; }
  // Returns the ring from sender to receiver. Makes it at the first use. Only the sender's thread may call this.
  MessageRing& ring_to_send(int sender, int receiver);
  // Returns the ring from sender to receiver; null until the sender has used it.
  MessageRing* ring_to_receive(int sender, int receiver) {
    return slot(sender, receiver).load(std::memory_order_acquire);
  }
  // Returns the hub of a subset of members, under that number. All of these members get the same hub.
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
  std::map<std::pair<std::vector<int>, std::uint64_t>, SubgroupHub>
      // Holds the hubs that some of their members have not taken yet.
      sides_;
};

}  // namespace lockstep::local
