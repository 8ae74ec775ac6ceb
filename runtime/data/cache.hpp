// SPDX-License-Identifier: Apache-2.0
// Defines the stage that keeps rows in memory for later loops. Pure.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "runtime/data/stages.hpp"

namespace lockstep::data {

// Keeps the rows of the first complete reading in memory for all readings after it.
template <class C>
class CacheStage final : public FollowingStage<C, C> {
 public:
  explicit CacheStage(SharedStage<C> upstream) : FollowingStage<C, C>(std::move(upstream)) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<CacheCursor>(*this, opening);
  }
  std::int64_t length() const override { return this->upstream().length(); }

 private:
  // Holds rows, and the opening in whose order they are.
  struct Reading {
    Opening opening;
    C rows;
  };

  // Returns the kept rows; null before a reading is complete.
  std::shared_ptr<const Reading> kept() const {
    const std::lock_guard lock(mutex_);
    return kept_;
  }
  void keep(std::shared_ptr<const Reading> reading) const {
    const std::lock_guard lock(mutex_);
    if (!kept_) kept_ = std::move(reading);
  }

  class CacheCursor final : public Cursor<C> {
   public:
    CacheCursor(const CacheStage& stage, const Opening& opening) : stage_(stage), kept_(stage.kept()) {
      if (!kept_) restart(opening);
    }
    void save(Writer& to) const override {
      const Opening& opening = kept_ ? kept_->opening : reading_->opening;
      to.put(static_cast<std::uint64_t>(next_)).put(opening.epoch);
      data::save(opening, to);
    }
    // Reads the rows before the position again, unless they are kept in its order.
    void seek(Reader& from) override {
      const auto position = from.get<std::uint64_t>();
      const auto epoch = from.get<std::uint64_t>();
      Opening opening = load(kept_ ? kept_->opening : reading_->opening, from);
      opening.epoch = epoch;
      kept_ = stage_.kept();
      if (kept_ && bytes_of(kept_->opening) != bytes_of(opening)) kept_ = nullptr;
      if (!kept_) {
        restart(opening);
        return check_position(this->skip(position) == position);
      }
      check_position(position <= rows_of(kept_->rows));
      next_ = position;
    }

   private:
    static Bytes bytes_of(const Opening& opening) {
      Writer writer;
      writer.put(opening.epoch);
      data::save(opening, writer);
      return writer.take();
    }
    void restart(const Opening& opening) {
      upstream_ = stage_.upstream().open(opening);
      reading_ = std::make_shared<Reading>();
      reading_->opening = opening;
      next_ = 0;
    }
    void read_rows(C& out, std::size_t max_rows) override {
      if (kept_) {
        const std::size_t number = std::min(max_rows, rows_of(kept_->rows) - next_);
        append_rows(out, kept_->rows, next_, number);
        next_ += number;
        return;
      }
      const std::size_t before = rows_of(reading_->rows);
      const std::size_t found = upstream_->read(reading_->rows, max_rows);
      append_rows(out, reading_->rows, before, found);
      next_ += found;
      // A loop over a known number of rows may stop at the last one, without a look for the end.
      if (found > 0 && static_cast<std::int64_t>(next_) != stage_.length()) return;
      kept_ = reading_;
      stage_.keep(reading_);
    }

    const CacheStage& stage_;
    std::unique_ptr<Cursor<C>> upstream_;
    std::shared_ptr<const Reading> kept_;
    std::shared_ptr<Reading> reading_;  // Is null if the rows were kept before.
    std::size_t next_ = 0;
  };

  std::string name() const override { return "cache"; }
  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<CacheStage>(std::move(upstream));
  }

  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Reading> kept_;
};

}  // namespace lockstep::data
