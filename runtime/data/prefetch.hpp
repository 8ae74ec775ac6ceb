// SPDX-License-Identifier: Apache-2.0
// Defines the stage that reads the rows above it in a thread of its own, ahead of its reader.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "runtime/data/read_ahead.hpp"
#include "runtime/data/row_positions.hpp"
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
    RowPosition after;
    std::exception_ptr failure;
    bool is_end = false;
  };

  class PrefetchCursor final : public Cursor<C> {
   public:
    PrefetchCursor(std::unique_ptr<Cursor<C>> upstream, std::size_t size)
        : upstream_(std::move(upstream)),
          position_(positions_.at(*upstream_)),
          ahead_(size, [this](Item& item) { return read_one(item); }) {}
    void save(Writer& to) const override { save_behind(position_.rows, *position_.base, to); }
    void seek(Reader& from) override {
      ahead_.pause();
      ahead_.clear();
      has_ended_ = false;
      position_ = seek_behind(*upstream_, from);
      positions_.go_to(position_);
    }

   private:
    // Returns the rows that are there; waits for one.
    void read_rows(C& out, std::size_t max_rows) override {
      for (std::size_t i = 0; i < max_rows && !has_ended_; ++i) {
        std::optional<Item> item = i == 0 ? ahead_.take() : ahead_.take_ready();
        if (!item) return;
        has_ended_ = item->is_end || item->failure != nullptr;
        if (item->failure) std::rethrow_exception(item->failure);
        if (item->is_end) return;
        if (rows_of(out) == 0)
          std::swap(out, item->row);
        else
          append_rows(out, item->row, 0, 1);
        position_ = std::move(item->after);
        ahead_.give_back(std::move(*item));
      }
    }
    // Reads in the thread. Returns false at the end, and after an exception.
    bool read_one(Item& item) {
      clear(item.row);
      try {
        const std::size_t number = upstream_->read(item.row, 1);
        item.is_end = number == 0;
        positions_.pass(number);
        item.after = positions_.at(*upstream_);
      } catch (...) {
        item.failure = std::current_exception();
      }
      return !item.is_end && !item.failure;
    }

    std::unique_ptr<Cursor<C>> upstream_;  // Belongs to the thread while it runs, as do its positions.
    RowPositions positions_;
    RowPosition position_;  // Is behind the last row that was read from here.
    bool has_ended_ = false;
    ReadAhead<Item> ahead_;
  };

  std::string name() const override { return text("prefetch(", size_, ')'); }
  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<PrefetchStage>(std::move(upstream), size_);
  }

  std::size_t size_;
};

}  // namespace lockstep::data
