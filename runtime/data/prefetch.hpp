// SPDX-License-Identifier: Apache-2.0
// Defines the stage that reads the rows above it in a thread of its own, ahead of its reader.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/data/processors.hpp"
#include "runtime/data/stages.hpp"

namespace lockstep::data {

// Reads up to `size` rows ahead.
template <class C>
class PrefetchStage final : public FollowingStage<C, C> {
 public:
  PrefetchStage(SharedStage<C> upstream, std::size_t size) : FollowingStage<C, C>(std::move(upstream)), size_(size) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<PrefetchCursor>(this->upstream().open(opening), size_);
  }
  std::int64_t length() const override { return this->upstream().length(); }

 private:
  // Holds a row, or the exception in its place, and the position behind it.
  struct Item {
    C row;
    Bytes after;
    std::exception_ptr failure;
    bool is_end = false;
  };

  class PrefetchCursor final : public Cursor<C> {
   public:
    PrefetchCursor(std::unique_ptr<Cursor<C>> upstream, std::size_t size)
        : upstream_(std::move(upstream)), size_(size), position_(position_of(*upstream_)) {}
    ~PrefetchCursor() override { stop(); }
    void save(Writer& to) const override { to.put(std::span<const std::byte>(position_)); }
    void seek(Reader& from) override {
      Bytes position = from.get_bytes();
      stop();
      items_.clear();
      has_ended_ = false;
      position_ = std::move(position);
      seek_to(*upstream_, position_);
    }

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      for (std::size_t i = 0; i < max_rows && !has_ended_; ++i) {
        Item item = next_item(i == 0);
        has_ended_ = item.is_end || item.failure != nullptr;
        if (item.failure) std::rethrow_exception(item.failure);
        if (item.is_end) return;
        if (rows_of(item.row) == 0) return;  // No more rows are there yet.
        if (rows_of(out) == 0)
          std::swap(out, item.row);
        else
          append_rows(out, item.row, 0, 1);
        position_ = std::move(item.after);
        give_back(std::move(item.row));
      }
    }
    // Returns the next item. Returns one without a row if none is there and `waits` is false.
    Item next_item(bool waits) {
      if (!thread_.joinable()) {
        stops_ = false;
        thread_ = std::thread([this] { read_ahead(); });
      }
      std::unique_lock lock(mutex_);
      if (waits) has_item_.wait(lock, [&] { return !items_.empty(); });
      if (items_.empty()) return {};
      Item item = std::move(items_.front());
      items_.pop_front();
      has_space_.notify_one();
      return item;
    }
    // Keeps the memory of a row that has been read for another one.
    void give_back(C row) {
      const std::lock_guard lock(mutex_);
      if (free_.size() < size_) free_.push_back(std::move(row));
    }
    // Is the job of the thread. It ends with the upstream, with an exception, or if the cursor stops it.
    void read_ahead() {
      HelperPlacement placement;
      for (bool is_last = false; !is_last;) {
        placement.update();
        Item item = empty_item();
        try {
          item.is_end = upstream_->read(item.row, 1) == 0;
          item.after = position_of(*upstream_);
        } catch (...) {
          item.failure = std::current_exception();
        }
        is_last = item.is_end || item.failure != nullptr;
        std::unique_lock lock(mutex_);
        has_space_.wait(lock, [&] { return items_.size() < size_ || stops_; });
        if (stops_) return;
        items_.push_back(std::move(item));
        has_item_.notify_one();
      }
    }
    Item empty_item() {
      const std::lock_guard lock(mutex_);
      Item item;
      if (!free_.empty()) {
        item.row = std::move(free_.back());
        free_.pop_back();
        clear(item.row);
      }
      return item;
    }
    void stop() {
      {
        const std::lock_guard lock(mutex_);
        stops_ = true;
      }
      has_space_.notify_one();
      if (thread_.joinable()) thread_.join();
    }

    std::unique_ptr<Cursor<C>> upstream_;  // Belongs to the thread while it runs.
    std::size_t size_;
    Bytes position_;  // Is behind the last row that was read from here.
    bool has_ended_ = false;
    std::mutex mutex_;
    std::condition_variable has_item_;
    std::condition_variable has_space_;
    std::deque<Item> items_;
    std::vector<C> free_;
    bool stops_ = false;
    std::thread thread_;
  };

  std::string name() const override { return text("prefetch(", size_, ')'); }
  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<PrefetchStage>(std::move(upstream), size_);
  }

  std::size_t size_;
};

}  // namespace lockstep::data
