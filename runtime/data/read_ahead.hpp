// SPDX-License-Identifier: Apache-2.0
// Produces items in a thread of its own, ahead of the thread that takes them.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "runtime/data/processors.hpp"

namespace lockstep::data {

// Keeps up to `size` items ready. One thread at a time may use it. Item has a default constructor.
template <class Item>
class ReadAhead {
 public:
  // Fills an item, which may have held an earlier one, in the thread. Returns false for the last item. It must not
  // throw.
  using Produce = std::function<bool(Item&)>;

  ReadAhead(std::size_t size, Produce produce) : size_(size), produce_(std::move(produce)) {}
  ~ReadAhead() { pause(); }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  // Returns the next item, for which it waits. There must be one.
  Item take() {
    start();
    std::unique_lock lock(mutex_);
    has_item_.wait(lock, [&] { return !items_.empty(); });
    return pop();
  }
  // Returns the next item if it is ready.
  std::optional<Item> take_ready() {
    const std::lock_guard lock(mutex_);
    return items_.empty() ? std::nullopt : std::optional(pop());
  }
  // Keeps an item's memory for a later one.
  void give_back(Item item) {
    const std::lock_guard lock(mutex_);
    if (unused_.size() < size_) unused_.push_back(std::move(item));
  }
  // Stops the thread after its current item. The next take() goes on.
  void pause() {
    {
      const std::lock_guard lock(mutex_);
      is_paused_ = true;
    }
    has_space_.notify_one();
    if (thread_.joinable()) thread_.join();
  }
  // Returns the next item; null if none is ready. The thread must be paused.
  const Item* front() const { return items_.empty() ? nullptr : &items_.front(); }
  // Forgets the items. The thread must be paused.
  void clear() {
    items_.clear();
    is_at_end_ = false;
  }

 private:
  void start() {
    if (thread_.joinable() || is_at_end_) return;
    is_paused_ = false;
    thread_ = std::thread([this] { run(); });
  }
  Item pop() {
    Item item = std::move(items_.front());
    items_.pop_front();
    has_space_.notify_one();
    return item;
  }
  // Is the job of the thread.
  void run() {
    HelperPlacement placement;
    std::unique_lock lock(mutex_);
    while (!is_at_end_) {
      has_space_.wait(lock, [&] { return items_.size() < size_ || is_paused_; });
      if (is_paused_) return;
      Item item;
      if (!unused_.empty()) {
        item = std::move(unused_.back());
        unused_.pop_back();
      }
      lock.unlock();
      placement.update();
      const bool is_last = !produce_(item);
      lock.lock();
      items_.push_back(std::move(item));
      is_at_end_ = is_last;
      has_item_.notify_one();
    }
  }

  std::size_t size_;
  Produce produce_;
  std::mutex mutex_;
  std::condition_variable has_item_;
  std::condition_variable has_space_;
  std::deque<Item> items_;
  std::vector<Item> unused_;
  bool is_paused_ = false;
  bool is_at_end_ = false;  // True if the last item has been produced.
  std::thread thread_;
};

}  // namespace lockstep::data
