// SPDX-License-Identifier: Apache-2.0
// Defines the stage that keeps rows for later loops, and the store that keeps them in memory. Pure.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/stages.hpp"

namespace lockstep::data {

// Returns the part of an opening that a stage and those above it use.
template <class C>
Opening opening_for(const Stage<C>& stage, const Opening& opening) {
  std::vector<const OrderSource*> shuffles;
  stage.add_shuffles(shuffles);
  auto orders = std::make_shared<Opening::Orders>();
  for (const auto& each : *opening.orders) {
    if (std::ranges::find(shuffles, each.first) != shuffles.end()) orders->push_back(each);
  }
  Opening part = opening;
  part.orders = std::move(orders);
  return part;
}

// Append an opening with its lap to a message, and read one for the same pipeline.
inline void save_with_lap(const Opening& opening, Writer& to) {
  to.put(opening.epoch);
  save(opening, to);
}
inline Opening load_with_lap(const Opening& like, Reader& from) {
  const auto epoch = from.get<std::uint64_t>();
  Opening opening = load(like, from);
  opening.epoch = epoch;
  return opening;
}
inline bool are_equal(const Opening& a, const Opening& b) {
  Writer first;
  Writer second;
  save_with_lap(a, first);
  save_with_lap(b, second);
  return first.take() == second.take();
}

// Keeps the rows of the first complete reading in a store for all readings after it. The store's find() returns the
// kept rows for one cursor, or nothing. Its record() begins to record rows; it returns null if rows are kept already.
template <class C, class Store>
class CacheStage final : public FollowingStage<C, C> {
 public:
  template <class... Arguments>
  explicit CacheStage(SharedStage<C> upstream, Arguments&&... arguments)
      : FollowingStage<C, C>(std::move(upstream)), store_(this->upstream(), std::forward<Arguments>(arguments)...) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<CacheCursor>(*this, opening_for(this->upstream(), opening));
  }
  std::int64_t length() const override { return this->upstream().length(); }
  SharedStage<C> with_input(const InputPart& part) const override {
    SharedStage<C> changed = this->upstream().with_input(part);
    return changed ? store_.template stage_on<CacheStage>(std::move(changed), part) : nullptr;
  }

 private:
  using Kept = decltype(std::declval<const Store&>().find(std::declval<const Opening&>()));
  using Recording = decltype(std::declval<const Store&>().record(std::declval<const Opening&>()));

  // Returns the order of the first reading that was complete or found; else the one that is given. All later readings
  // have it, whatever order other loops and processes keep meanwhile.
  Opening order(const Opening& otherwise) const {
    const std::lock_guard lock(mutex_);
    return first_ ? *first_ : otherwise;
  }
  // Makes an order the first one, unless there is one. Returns true if it is equal to the first one.
  bool agree(const Opening& opening) const {
    const std::lock_guard lock(mutex_);
    if (!first_) first_ = opening;
    return are_equal(*first_, opening);
  }

  class CacheCursor final : public Cursor<C> {
   public:
    CacheCursor(const CacheStage& stage, const Opening& opening)
        : stage_(stage), is_peek_(opening.is_peek), opening_(opening) {
      find();
      if (!kept_) restart(stage.order(opening));
    }
    void save(Writer& to) const override {
      to.put(next_).put(has_ended_);
      save_with_lap(opening_, to);
    }
    // Reads the rows before the position again, unless they are kept in its order.
    void seek(Reader& from) override {
      const auto position = from.get<std::uint64_t>();
      const auto has_ended = from.get<bool>();
      const Opening opening = load_with_lap(opening_, from);
      find();
      if (!kept_ || !are_equal(kept_->opening(), opening)) {
        restart(opening);
        check_position(this->skip(position) == position);
        // The stage behind may not ask again for the end, which completes the reading.
        if (has_ended) check_position(this->skip(1) == 0);
      } else {
        check_position(position <= kept_->size());
        next_ = position;
        has_ended_ = has_ended;
      }
    }

   private:
    std::size_t skip_rows(std::size_t rows) override {
      if (!kept_) return Cursor<C>::skip_rows(rows);
      const std::size_t skipped = std::min<std::uint64_t>(rows, kept_->size() - next_);
      next_ += skipped;
      return skipped;
    }
    void find() {
      kept_ = stage_.store_.find(opening_);
      if (kept_ && !is_peek_ && !stage_.agree(kept_->opening())) kept_.reset();
      if (kept_) opening_ = kept_->opening();
    }
    void restart(const Opening& opening) {
      opening_ = opening;
      opening_.is_peek = is_peek_;
      kept_.reset();
      recording_.reset();
      upstream_ = stage_.upstream().open(opening_);
      next_ = 0;
      has_ended_ = false;
    }
    void read_rows(C& out, std::size_t max_rows) override {
      const std::size_t found = kept_ ? kept_->append(out, next_, max_rows) : read_upstream(out, max_rows);
      next_ += found;
      has_ended_ = found == 0;
    }
    std::size_t read_upstream(C& out, std::size_t max_rows) try {
      if (has_ended_) return 0;
      if (is_peek_) return upstream_->read(out, max_rows);
      if (next_ == 0) recording_ = stage_.store_.record(opening_);
      const std::size_t before = rows_of(out);
      const std::size_t found = upstream_->read(out, max_rows);
      if (found > 0 && recording_) recording_->add(out, before, found);
      // A loop over a known number of rows may stop at the last one, without a look for the end.
      if (found > 0 && static_cast<std::int64_t>(next_ + found) != stage_.length()) return found;
      const bool is_first = stage_.agree(opening_);
      if (recording_ && is_first) recording_->keep();
      recording_.reset();
      return found;
    } catch (...) {
      recording_.reset();  // It would lack rows.
      throw;
    }

    const CacheStage& stage_;
    bool is_peek_;
    Opening opening_;  // Holds the order of the rows that this cursor reads.
    Kept kept_;
    Recording recording_;
    std::unique_ptr<Cursor<C>> upstream_;
    std::uint64_t next_ = 0;
    bool has_ended_ = false;  // True if the end has been read.
  };

  std::string name() const override { return store_.name(); }
  SharedStage<C> on(SharedStage<C> upstream) const override {
    return store_.template stage_on<CacheStage>(std::move(upstream), InputPart());
  }

  Store store_;
  mutable std::mutex mutex_;
  mutable std::optional<Opening> first_;
};

// Keeps rows in memory.
template <class C>
class MemoryStore {
 public:
  // Holds rows, and the opening in whose order they are.
  struct Reading {
    Opening opening;
    C rows;
  };
  class Kept {
   public:
    explicit Kept(std::shared_ptr<const Reading> reading) : reading_(std::move(reading)) {}
    const Opening& opening() const { return reading_->opening; }
    std::uint64_t size() const { return rows_of(reading_->rows); }
    std::size_t append(C& out, std::uint64_t first, std::size_t max_rows) const {
      const std::size_t number = std::min<std::uint64_t>(max_rows, size() - first);
      append_rows(out, reading_->rows, first, number);
      return number;
    }

   private:
    std::shared_ptr<const Reading> reading_;
  };
  class Recording {
   public:
    Recording(const MemoryStore& store, const Opening& opening) : store_(store), reading_(std::make_shared<Reading>()) {
      reading_->opening = opening;
    }
    void add(const C& rows, std::size_t first, std::size_t number) { append_rows(reading_->rows, rows, first, number); }
    void keep() {
      const std::lock_guard lock(store_.mutex_);
      if (!store_.kept_) store_.kept_ = std::move(reading_);
    }

   private:
    const MemoryStore& store_;
    std::shared_ptr<Reading> reading_;
  };

  explicit MemoryStore(const Stage<C>& /*upstream*/) {}
  std::string name() const { return "cache"; }
  template <class S>
  std::shared_ptr<S> stage_on(SharedStage<C> upstream, const InputPart& /*part*/) const {
    return std::make_shared<S>(std::move(upstream));
  }
  std::optional<Kept> find(const Opening& /*like*/) const {
    const std::lock_guard lock(mutex_);
    return kept_ ? std::optional<Kept>(kept_) : std::nullopt;
  }
  std::unique_ptr<Recording> record(const Opening& opening) const {
    return find(opening) ? nullptr : std::make_unique<Recording>(*this, opening);
  }

 private:
  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Reading> kept_;
};

template <class C>
using MemoryCacheStage = CacheStage<C, MemoryStore<C>>;

}  // namespace lockstep::data
