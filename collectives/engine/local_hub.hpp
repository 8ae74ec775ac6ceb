// SPDX-License-Identifier: Apache-2.0
// What threads that are members of one communicator share: a ring of messages for every ordered pair that talks, a
// box for words and a bell for every member. Everything that one thread looks at while another changes it is an
// atomic or under a mutex. Part of the local transport only.
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

// A message on its way. Its sender fills it in, and later sees that it is done or takes it back; its receiver copies
// from the sender's memory.
struct alignas(cache_line) Cell {
  enum class State : std::uint32_t { posted, copying, done, withdrawn };
  std::atomic<State> state{State::done};
  std::uint64_t key = 0;  // equal for messages that belong together
  const void* data = nullptr;
  std::size_t bytes = 0;
};

// One thread puts in, one thread takes out.
class Ring {
 public:
  bool push(Cell* cell) {
    const std::uint32_t tail = tail_.load(std::memory_order_relaxed);
    if (tail - head_.load(std::memory_order_acquire) == cells_.size()) return false;
    cells_[tail % cells_.size()] = cell;
    tail_.store(tail + 1, std::memory_order_seq_cst);  // before the look at the receiver's bell
    return true;
  }
  Cell* pop() {
    const std::uint32_t head = head_.load(std::memory_order_relaxed);
    if (head == tail_.load(std::memory_order_acquire)) return nullptr;
    Cell* cell = cells_[head % cells_.size()];
    head_.store(head + 1, std::memory_order_release);
    return cell;
  }
  // For the receiver.
  bool has_any() const { return head_.load(std::memory_order_relaxed) != tail_.load(std::memory_order_seq_cst); }

 private:
  alignas(cache_line) std::atomic<std::uint32_t> head_{0};
  alignas(cache_line) std::atomic<std::uint32_t> tail_{0};
  std::array<Cell*, 64> cells_ = {};
};

// Whoever brings something rings, which costs nothing unless the other sleeps.
class Bell {
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

class Box {
 public:
  void put(Transport::Heard heard);
  std::optional<Transport::Heard> take();
  bool has_any() const { return count_.load(std::memory_order_seq_cst) > 0; }

 private:
  std::atomic<std::size_t> count_{0};
  std::mutex mutex_;
  std::deque<Transport::Heard> words_;
};

// What belongs to a member and may be looked at by others even when it has gone.
struct alignas(cache_line) Seat {
  Bell bell;
  Box box;
  std::deque<Cell> cells;  // of the messages that it sent
  std::atomic<bool> has_left{false};
};

class Hub {
 public:
  explicit Hub(int size);
  ~Hub();
  Hub(const Hub&) = delete;
  Hub& operator=(const Hub&) = delete;

  int size() const { return static_cast<int>(seats_.size()); }
  Seat& seat(int member) { return seats_[static_cast<std::size_t>(member)]; }
  // Of the sender, who makes it when it first sends.
  Ring& ring_to_send(int sender, int receiver);
  // Nothing yet if it was never sent to.
  Ring* ring_to_receive(int sender, int receiver) { return slot(sender, receiver).load(std::memory_order_acquire); }
  // The one in which these of its members meet, under that number.
  std::shared_ptr<Hub> side(std::span<const int> members, std::uint64_t number);

 private:
  std::atomic<Ring*>& slot(int sender, int receiver) {
    return rings_[static_cast<std::size_t>(sender) * seats_.size() + static_cast<std::size_t>(receiver)];
  }

  std::deque<Seat> seats_;
  std::vector<std::atomic<Ring*>> rings_;
  std::mutex mutex_;
  struct Side {
    std::shared_ptr<Hub> hub;
    std::size_t takers = 0;
  };
  std::map<std::pair<std::vector<int>, std::uint64_t>, Side> sides_;  // that not all have taken
};

}  // namespace lockstep::local
