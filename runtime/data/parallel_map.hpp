// SPDX-License-Identifier: Apache-2.0
// Defines the stage that calls a function in several threads at once. Rows go through the function in chunks. The
// reader reads the stage above, so that one thread at a time does, and takes the results in order.
#pragma once

#include <atomic>
#include <chrono>
#include <deque>
#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/data/job_queue.hpp"
#include "runtime/data/processors.hpp"
#include "runtime/data/row_positions.hpp"
#include "runtime/data/stages.hpp"

namespace lockstep::data {

// Lets map() find the number of calls by measuring: a cheap function runs in the reader's thread alone, and others in
// as many threads as the reader needs, up to free_processors().
inline constexpr std::int64_t automatic = -1;

struct MapOptions {
  std::int64_t calls = 1;  // Limits the calls at the same time in each loop; or is `automatic`.
};

// Measures how long a function takes. Threads may add at once: then one of their measurements is lost.
class CallTime {
 public:
  using Clock = std::chrono::steady_clock;
  // Adds the time since `begin` for a number of calls.
  void add(Clock::time_point begin, std::size_t calls) {
    if (calls == 0) return;
    const double now = std::chrono::duration<double, std::nano>(Clock::now() - begin).count();
    const double each = now / static_cast<double>(calls);
    const double before = ns();
    mean_.store(before == 0 ? each : before + (each - before) / 4, std::memory_order_relaxed);
  }
  // Returns the mean of a call, in which the last ones count most; 0 before the first.
  double ns() const { return mean_.load(std::memory_order_relaxed); }

 private:
  std::atomic<double> mean_{0};
};

// Calls a function with each element, in several threads.
template <class E, class R, class F>
class ParallelMapStage final : public FollowingStage<Columns<E>, Columns<R>> {
 public:
  using In = Columns<E>;
  using C = Columns<R>;
  ParallelMapStage(SharedStage<In> upstream, F function, MapOptions options)
      : FollowingStage<In, C>(std::move(upstream)), function_(std::move(function)), options_(options) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<ParallelMapCursor>(*this, this->upstream().open(opening));
  }
  std::int64_t length() const override { return this->upstream().length(); }
  bool is_indexed() const override { return this->upstream().is_indexed(); }
  void gather(std::span<const std::int64_t> numbers, C& out) const override {
    In rows;
    this->upstream().gather(numbers, rows);
    const std::size_t parts = parts_of(rows_of(rows));
    if (parts > 1)
      append_in_parts(rows, parts, out);
    else
      append_here(rows, 0, rows_of(rows), out);
  }

 private:
  using Clock = CallTime::Clock;
  // To wake a sleeping thread takes about 20 us. A chunk takes ten times as long, unless one row does. A function is
  // cheap if a chunk of the most rows takes less. All are guesses; a quiet machine with several processors would tell.
  static constexpr double hand_over_ns = 20'000;
  static constexpr double chunk_ns = 10 * hand_over_ns;
  static constexpr std::size_t max_chunk_rows = rows_apart;

  // Holds rows, or refers to those of another owner, and their results.
  struct Chunk final : Job {
    explicit Chunk(const ParallelMapStage& its_stage) : stage(its_stage) {}
    void run() noexcept override {
      try {
        stage.append_here(*from, first, number, results);
      } catch (...) {
        failure = std::current_exception();
        truncate(results, complete_rows_of(results));
      }
    }

    const ParallelMapStage& stage;
    In rows;
    const In* from = &rows;
    std::size_t first = 0;
    std::size_t number = 0;
    C results;
    std::exception_ptr failure;  // Comes after the results.
    RowPosition before;          // Is the upstream's position before the rows.
  };

  class ParallelMapCursor final : public Cursor<C> {
   public:
    ParallelMapCursor(const ParallelMapStage& stage, std::unique_ptr<Cursor<In>> upstream)
        : stage_(stage),
          upstream_(std::move(upstream)),
          limit_(stage.is_automatic() ? 2 : stage.limit()),
          queue_(std::make_shared<JobQueue>(limit_)) {}
    ~ParallelMapCursor() override { queue_->stop(); }
    void save(Writer& to) const override {
      if (window_.empty())
        save_behind(0, position_of(*upstream_), to);
      else
        save_behind(window_.front()->before.rows + returned_, *window_.front()->before.base, to);
    }
    void seek(Reader& from) override {
      queue_->stop();
      window_.clear();
      returned_ = 0;
      is_ready_ = false;
      has_ended_ = false;
      positions_.go_to(seek_behind(*upstream_, from));
    }
    // While chunks are there, the position is before the oldest row of them.
    bool has_failed() const override { return Cursor<C>::has_failed() || (window_.empty() && upstream_->has_failed()); }

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      if (window_.empty() && !has_ended_ && stage_.is_cheap()) return read_here(out, max_rows);
      for (std::size_t left = max_rows; left > 0 && make_ready(left == max_rows);) {
        Chunk& oldest = *window_.front();
        const std::size_t number = std::min(left, rows_of(oldest.results) - returned_);
        append_rows(out, oldest.results, returned_, number);
        returned_ += number;
        left -= number;
        if (returned_ == rows_of(oldest.results) && !oldest.failure) go_to_next_chunk();
      }
    }
    // True if the oldest chunk has a result that has not been read. If `waits` is true, it waits for one, and throws
    // the exception of a failed chunk. That chunk stays, so that the position stays before the failing row.
    bool make_ready(bool waits) {
      if (!is_ready_) {
        if (!waits && window_.empty() && stage_.is_cheap()) return false;
        read_ahead();
        if (window_.empty()) return false;
        if (!queue_->is_done(*window_.front())) {
          if (!waits) return false;
          wait_for(*window_.front());
        }
        is_ready_ = true;
      }
      const Chunk& oldest = *window_.front();
      if (returned_ < rows_of(oldest.results)) return true;
      if (!waits) return false;
      has_ended_ = true;
      std::rethrow_exception(oldest.failure);
    }
    void read_here(C& out, std::size_t max_rows) {
      clear(rows_);
      positions_.pass(upstream_->read(rows_, max_rows));
      stage_.append_here(rows_, 0, rows_of(rows_), out);
    }
    // Skips rows without calls, except calls that have begun. A failing row may be among them; if its chunk has more
    // rows, the next read throws.
    std::size_t skip_rows(std::size_t rows) override {
      std::size_t left = rows;
      while (left > 0 && !window_.empty()) {
        const Chunk& oldest = *window_.front();
        if (oldest.number == 0) {
          queue_->wait(oldest);
          std::rethrow_exception(oldest.failure);
        }
        const std::size_t number = std::min(left, oldest.number - returned_);
        returned_ += number;
        left -= number;
        if (returned_ < oldest.number) break;
        queue_->forget(oldest);
        go_to_next_chunk();
      }
      if (left == 0 || has_ended_) return rows - left;
      const std::size_t found = upstream_->skip(left);
      positions_.pass(found);
      return rows - left + found;
    }
    // Reads a chunk, and more of them while the oldest one is not done.
    void read_ahead() {
      do {
        if (has_ended_ || window_.size() >= 2 * limit_ || (!window_.empty() && stage_.is_cheap())) return;
        auto chunk = std::make_shared<Chunk>(stage_);
        if (!spare_.empty()) {
          std::tie(chunk->rows, chunk->results) = std::move(spare_.back());
          spare_.pop_back();
        }
        chunk->before = positions_.at(*upstream_);
        const auto begin = Clock::now();
        try {
          chunk->number = upstream_->read(chunk->rows, chunk_rows());
        } catch (...) {
          chunk->failure = std::current_exception();
        }
        positions_.pass(chunk->number);
        read_time_.add(begin, chunk->number);
        has_ended_ = chunk->number == 0;
        if (has_ended_ && !chunk->failure) return;
        window_.push_back(chunk);
        queue_->add(std::move(chunk));
      } while (!queue_->is_done(*window_.front()));
    }
    // Returns a number that grows, until chunks take as long as they should.
    std::size_t chunk_rows() {
      const double each = stage_.time_.ns() + read_time_.ns();
      const double wanted = each == 0 ? 1 : std::clamp(chunk_ns / each, 1.0, static_cast<double>(max_chunk_rows));
      chunk_rows_ = std::min(2 * chunk_rows_, static_cast<std::size_t>(wanted));
      return chunk_rows_;
    }
    // With `automatic`, a reader that must wait gets one more thread.
    void wait_for(const Chunk& chunk) {
      if (limit_ < stage_.limit()) queue_->set_limit(++limit_);
      queue_->wait(chunk);
    }
    // Keeps the memory of the oldest chunk, if no thread uses it.
    void go_to_next_chunk() {
      Chunk& oldest = *window_.front();
      if (is_ready_ || queue_->is_done(oldest)) {
        clear(oldest.rows);
        clear(oldest.results);
        spare_.emplace_back(std::move(oldest.rows), std::move(oldest.results));
      }
      window_.pop_front();
      returned_ = 0;
      is_ready_ = false;
    }

    const ParallelMapStage& stage_;
    std::unique_ptr<Cursor<In>> upstream_;
    RowPositions positions_;  // Follows the upstream.
    std::size_t limit_;
    std::shared_ptr<JobQueue> queue_;
    std::deque<std::shared_ptr<Chunk>> window_;  // Holds the chunks that have been read, the oldest first.
    std::vector<std::pair<In, C>> spare_;
    std::size_t returned_ = 0;  // Counts the rows of the oldest chunk that have been read from here.
    bool is_ready_ = false;     // True if the oldest chunk is known to be done.
    std::size_t chunk_rows_ = 1;
    CallTime read_time_;
    bool has_ended_ = false;
    In rows_;
  };

  std::string name() const override { return "map"; }
  SharedStage<C> on(SharedStage<In> upstream) const override {
    return std::make_shared<ParallelMapStage>(std::move(upstream), copy_of(function_), options_);
  }
  bool is_automatic() const { return options_.calls == automatic; }
  std::size_t limit() const {
    return is_automatic() ? std::max<std::size_t>(2, free_processors()) : static_cast<std::size_t>(options_.calls);
  }
  // True if the reader's thread should call the function itself. It does so with `automatic` until the function has
  // been measured.
  bool is_cheap() const {
    if (!is_automatic()) return false;
    return free_processors() == 0 || time_.ns() * max_chunk_rows < chunk_ns;
  }
  // Returns the number of parts for rows that are needed at once: two for each thread, if they take long enough.
  std::size_t parts_of(std::size_t rows) const {
    if (is_cheap() || limit() < 2) return 1;
    const double each = time_.ns();
    const auto parts = std::min(rows, 2 * limit());
    if (each == 0) return parts;
    const double worth = each * static_cast<double>(rows) / hand_over_ns;
    return std::max<std::size_t>(1, std::min(parts, static_cast<std::size_t>(std::min(worth, 1e6))));
  }
  void append_here(const In& rows, std::size_t first, std::size_t number, C& out) const {
    const auto begin = Clock::now();
    append_results<E, R>(function_, rows, first, number, out);
    time_.add(begin, number);
  }
  // Calls the function for the first part in this thread, and for all others wherever a thread is free.
  void append_in_parts(const In& rows, std::size_t parts, C& out) const {
    const auto queue = std::make_shared<JobQueue>(limit() - 1);
    std::vector<std::shared_ptr<Chunk>> chunks;
    const auto begin_of = [&](std::size_t part) { return rows_of(rows) * part / parts; };
    try {
      for (std::size_t part = 1; part < parts; ++part) {
        chunks.push_back(std::make_shared<Chunk>(*this));
        chunks.back()->from = &rows;
        chunks.back()->first = begin_of(part);
        chunks.back()->number = begin_of(part + 1) - begin_of(part);
        queue->add(chunks.back());
      }
      append_here(rows, 0, begin_of(1), out);
      for (const std::shared_ptr<Chunk>& chunk : chunks) {
        queue->wait(*chunk);
        append_rows(out, chunk->results, 0, rows_of(chunk->results));
        if (chunk->failure) std::rethrow_exception(chunk->failure);
      }
    } catch (...) {
      queue->stop();  // Threads may still read the rows.
      throw;
    }
  }

  const F function_;
  MapOptions options_;
  mutable CallTime time_;
};

}  // namespace lockstep::data
