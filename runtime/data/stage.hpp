// SPDX-License-Identifier: Apache-2.0
// Defines the parts of a pipeline: a stage is a description that never changes, and a cursor reads it from a position.
// Cursors are asked for many rows at once, so no element costs a virtual call. Pure.
#pragma once

#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/column.hpp"
#include "runtime/data/pieces.hpp"
#include "runtime/data/random.hpp"
#include "runtime/data/sharding.hpp"
#include "topology/base/bytes.hpp"

namespace lockstep::data {

// Are the lengths of pipelines that have no number of elements.
inline constexpr std::int64_t infinite = -1;
inline constexpr std::int64_t unknown_length = -2;

// Throws Error bad_message unless the condition of a position holds.
inline void check_position(bool holds) {
  if (!holds)
    throw Error(Code::bad_message, "a position that this pipeline does not have",
                "use the bytes of position() with the pipeline that they are from");
}

// Identifies the order that a shuffle gives to one loop.
struct Order {
  std::uint64_t seed = 0;
  std::uint64_t loop = 0;  // Counts the loops over this shuffle in the program.
};

// Is the part of a shuffle that gives each loop its order.
class OrderSource {
 public:
  // Without a seed, it draws one of its own.
  explicit OrderSource(std::optional<std::uint64_t> seed) : seed_(seed ? *seed : fresh_seed()) {}
  Order next() const { return {seed_, loops_.fetch_add(1, std::memory_order_relaxed)}; }
  // Returns the order of the first loop, and counts none.
  Order first() const { return {seed_, 0}; }

 private:
  std::uint64_t seed_;
  mutable std::atomic<std::uint64_t> loops_ = 0;
};

// Tells the shuffles of a pipeline which order a loop gets. A position holds it.
struct Opening {
  using Orders = std::vector<std::pair<const OrderSource*, Order>>;
  std::shared_ptr<const Orders> orders = std::make_shared<Orders>();  // Holds the order of each shuffle; never null.
  std::uint64_t seed = 0;   // Is for shuffles in the data sets that functions return.
  std::uint64_t epoch = 0;  // Counts the laps of repeat(), with those of the stages above.
  bool is_peek = false;     // Is true for a look at the first element, of which caches keep nothing.

  // Returns the order of a shuffle; nothing for one in a data set that a function has returned.
  std::optional<Order> find(const OrderSource* shuffle) const {
    const auto found = std::ranges::find(*orders, shuffle, &Orders::value_type::first);
    return found == orders->end() ? std::nullopt : std::optional(found->second);
  }
};

// Reads rows with the columns C in order. One thread at a time may use it.
template <class C>
class Cursor {
 public:
  Cursor() = default;
  Cursor(const Cursor&) = delete;
  Cursor& operator=(const Cursor&) = delete;
  virtual ~Cursor() = default;

  // Appends up to `max_rows` rows and returns their number, which is 0 at the end only. An exception comes after the
  // rows before it have been read.
  std::size_t read(C& out, std::size_t max_rows) {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    const std::size_t before = rows_of(out);
    try {
      read_rows(out, max_rows);
    } catch (...) {
      truncate(out, complete_rows_of(out));
      if (rows_of(out) == before) throw;
      failure_ = std::current_exception();
    }
    return rows_of(out) - before;
  }
  // Appends `max_rows` rows, or fewer at the end. Appends nothing if an exception comes.
  std::size_t read_all(C& out, std::size_t max_rows) {
    const std::size_t before = rows_of(out);
    try {
      for (std::size_t left = max_rows; left > 0;) {
        const std::size_t found = read(out, left);
        if (found == 0) break;
        left -= found;
      }
    } catch (...) {
      truncate(out, before);
      throw;
    }
    return rows_of(out) - before;
  }
  // Appends `max_rows` rows, or fewer at the end or before an exception, which the next read throws.
  std::size_t read_until_failure(C& out, std::size_t max_rows) {
    const std::size_t before = rows_of(out);
    for (std::size_t left = max_rows; left > 0;) {
      std::size_t found = 0;
      try {
        found = read(out, left);
      } catch (...) {
        if (left == max_rows) throw;
        failure_ = std::current_exception();
      }
      if (found == 0) break;
      left -= found;
    }
    return rows_of(out) - before;
  }
  // True if the next read throws an exception that has come already, here or in a stage above. The position may then be
  // behind the failing row.
  virtual bool has_failed() const { return failure_ != nullptr; }
  // Skips rows. Returns their number, which is lower at the end.
  std::size_t skip(std::size_t rows) {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return skip_rows(rows);
  }
  // Reads the next row, which is a batch, as some of its pieces, one in each of `out`. Returns the number of rows in
  // the whole batch; nothing at the end.
  std::optional<std::int64_t> read_pieces(const BatchPieces& pieces, std::span<C> out) {
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return read_batch_pieces(pieces, out);
  }
  // Appends the position to a message.
  virtual void save(Writer& to) const = 0;
  // Goes to a position of a cursor of the same stage. Throws Error bad_message for bytes that are no such position.
  virtual void seek(Reader& from) = 0;

 protected:
  // Appends one row at least, unless it is at the end.
  virtual void read_rows(C& out, std::size_t max_rows) = 0;
  // Skips rows, by default by reading them. Returns their number.
  virtual std::size_t skip_rows(std::size_t rows) {
    constexpr std::size_t at_once = 256;
    std::size_t left = rows;
    while (left > 0) {
      clear(unused_);
      const std::size_t found = read(unused_, std::min(left, at_once));
      if (found == 0) break;
      left -= found;
    }
    return rows - left;
  }
  // Is read_pieces(), by default by reading a whole batch.
  virtual std::optional<std::int64_t> read_batch_pieces(const BatchPieces& pieces, std::span<C> out) {
    if constexpr (are_tensors<C>) {
      clear(unused_);
      if (read(unused_, 1) == 0) return std::nullopt;
      const std::int64_t rows = rows_in_batch(unused_, pieces.pipeline);
      divide_batch(unused_, pieces.of(rows), out);
      return rows;
    } else {
      throw Error(Code::internal, text("texts in a batch of ", pieces.pipeline));
    }
  }

 private:
  std::exception_ptr failure_;  // Holds the exception that the next read throws.
  C unused_;                    // Keeps memory for rows of which no reader has need.
};

// Returns the position of a cursor as bytes.
template <class C>
Bytes position_of(const Cursor<C>& cursor) {
  Writer writer;
  cursor.save(writer);
  return writer.take();
}
template <class C>
void seek_to(Cursor<C>& cursor, const Bytes& position) {
  Reader reader(position);
  cursor.seek(reader);
}

// Describes a source, or a source with what happens to its rows. Several threads may use it.
template <class C>
class Stage {
 public:
  Stage() = default;
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;
  virtual ~Stage() = default;

  // Returns a cursor at the beginning, which may refer to this stage.
  virtual std::unique_ptr<Cursor<C>> open(const Opening& opening) const = 0;
  // Returns the number of rows, `infinite` or `unknown_length`.
  virtual std::int64_t length() const = 0;
  // Returns a text for people: "range(0, 10, 1) | batch(3)".
  virtual std::string describe() const = 0;

  // True if rows can be read in any order, by their numbers from 0 to length() - 1.
  virtual bool is_indexed() const { return false; }
  // Append the rows of these numbers. They must be there, and the stage must be indexed.
  virtual void gather(std::span<const std::int64_t> numbers, C& out) const;
  virtual void gather_range(std::int64_t first, std::size_t number, C& out) const {
    std::vector<std::int64_t> numbers(number);
    std::iota(numbers.begin(), numbers.end(), first);
    gather(numbers, out);
  }
  // True if a loop must read one row at a time: its position is large, or its rows come from outside of the program.
  virtual bool needs_single_reads() const { return false; }
  // Returns the number of rows in whole batches; unknown_length if rows are no batches.
  virtual std::int64_t batch_size() const { return unknown_length; }
  // Returns the number of rows in all batches, `infinite` or `unknown_length`.
  virtual std::int64_t row_count() const { return unknown_length; }
  // Returns the number of files that the pipeline reads; 0 for none.
  virtual std::int64_t file_count() const { return 0; }
  // Returns the way in which processes share the reading.
  virtual Sharding sharding() const { return Sharding::automatic; }
  // Returns this pipeline with a part of its input; null if nothing in it depends on the part.
  virtual std::shared_ptr<const Stage> with_input(const InputPart& /*part*/) const { return nullptr; }
  // Appends the shuffles of the pipeline, the first one first.
  virtual void add_shuffles(std::vector<const OrderSource*>& /*to*/) const {}
};

template <class C>
void Stage<C>::gather(std::span<const std::int64_t> /*numbers*/, C& /*out*/) const {
  throw Error(Code::internal, text(describe(), " has no numbered rows"));
}

// Returns an opening with an order for each shuffle, which a function returns.
template <class C, class F>
Opening opening_with(const Stage<C>& stage, F&& order_of) {
  std::vector<const OrderSource*> shuffles;
  stage.add_shuffles(shuffles);
  auto orders = std::make_shared<Opening::Orders>();
  for (const OrderSource* const each : shuffles) {
    if (std::ranges::find(*orders, each, &Opening::Orders::value_type::first) == orders->end())
      orders->emplace_back(each, order_of(*each));
  }
  return {.orders = std::move(orders), .seed = 0, .epoch = 0, .is_peek = false};
}
// Returns the opening of a loop that begins now.
template <class C>
Opening opening_of(const Stage<C>& stage) {
  Opening opening = opening_with(stage, [](const OrderSource& shuffle) { return shuffle.next(); });
  opening.seed = fresh_seed();
  return opening;
}
// Returns the opening of a look at the first element, which is no loop.
template <class C>
Opening peek_opening_of(const Stage<C>& stage) {
  Opening opening = opening_with(stage, [](const OrderSource& shuffle) { return shuffle.first(); });
  opening.is_peek = true;
  return opening;
}
// Appends the opening to a message, and reads one for the same pipeline.
inline void save(const Opening& opening, Writer& to) {
  to.put(opening.seed);
  for (const auto& [source, order] : *opening.orders) to.put(order.seed).put(order.loop);
}
inline Opening load(const Opening& like, Reader& from) {
  auto orders = std::make_shared<Opening::Orders>(*like.orders);
  Opening opening;
  opening.is_peek = like.is_peek;
  opening.seed = from.get<std::uint64_t>();
  for (auto& [source, order] : *orders) {
    order.seed = from.get<std::uint64_t>();
    order.loop = from.get<std::uint64_t>();
  }
  opening.orders = std::move(orders);
  return opening;
}

template <class C>
using SharedStage = std::shared_ptr<const Stage<C>>;

// Reads an indexed stage from its first row to its last one.
template <class C>
class IndexedCursor final : public Cursor<C> {
 public:
  explicit IndexedCursor(const Stage<C>& stage) : stage_(stage), length_(stage.length()) {}
  void save(Writer& to) const override { to.put(next_); }
  void seek(Reader& from) override {
    next_ = from.get<std::int64_t>();
    check_position(next_ >= 0 && next_ <= length_);
  }

 private:
  void read_rows(C& out, std::size_t max_rows) override {
    const auto number = std::min(static_cast<std::int64_t>(max_rows), length_ - next_);
    if (number <= 0) return;
    stage_.gather_range(next_, static_cast<std::size_t>(number), out);
    next_ += number;
  }
  std::size_t skip_rows(std::size_t rows) override {
    const auto number = std::min(static_cast<std::int64_t>(rows), length_ - next_);
    next_ += number;
    return static_cast<std::size_t>(number);
  }

  const Stage<C>& stage_;
  std::int64_t length_;
  std::int64_t next_ = 0;
};

}  // namespace lockstep::data
