// SPDX-License-Identifier: Apache-2.0
// Reads the pieces that the replicas of one process get in each step of a loop. There are three ways: pieces of one
// sequence that all processes read, rows of a sequence of the process's own, and whole elements of its own. Pure.
#pragma once

#include <cstdint>
#include <exception>
#include <memory>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/dataset.hpp"
#include "runtime/data/pieces.hpp"
#include "runtime/data/row_positions.hpp"

namespace lockstep::detail {

// Holds the pieces of one step, each as the only row of its columns.
template <class C>
struct InputStep {
  std::vector<C> pieces;
  std::int64_t rows = 0;       // Counts the rows of all pieces that the source knows: of all replicas, or of these.
  bool is_end = false;         // True if the source has no more rows. Pieces may then be empty batches.
  std::exception_ptr failure;  // Is the exception in its place.
  data::RowPosition before;    // Is a position before this step or an earlier one, and the number of steps between.
};

// Reads steps. One thread at a time may use it.
template <class C>
class StepSource {
 public:
  StepSource() = default;
  StepSource(const StepSource&) = delete;
  StepSource& operator=(const StepSource&) = delete;
  virtual ~StepSource() = default;
  // Replaces the pieces of a step, its rows and `is_end`.
  virtual void read(InputStep<C>& step) = 0;
  virtual Bytes position() const = 0;
  virtual void seek(std::span<const std::byte> position) = 0;
  // Returns the number of steps from the beginning, data::infinite or data::unknown_length.
  virtual std::int64_t length() const = 0;
  // Returns another source of the same steps, at the beginning.
  virtual std::unique_ptr<StepSource> reopen() const = 0;
  // Is false: a source is not read after an exception.
  static bool has_failed() { return false; }
};
template <class C>
Bytes position_of(const StepSource<C>& source) {
  return source.position();
}

// Replaces a piece by an empty batch with rows like those of another one, or of unknown shape without it.
template <class C>
void make_empty(C& piece, const C& like) {
  data::clear(piece);
  data::zip_columns(
      piece, like,
      [](auto& to, const auto& from) { to.append(from.rows() == 0 ? TensorShape{0} : from.shape(0).with(0, 0), 1); },
      std::make_index_sequence<std::tuple_size_v<C>>());
}

// Reads the whole sequence of batches, and keeps some pieces of each.
template <class E>
class SharedSequence final : public StepSource<data::Columns<E>> {
 public:
  using C = data::Columns<E>;
  SharedSequence(data::SharedStage<C> stage, const data::Opening& opening, data::BatchPieces pieces)
      : stage_(std::move(stage)), opening_(opening), pieces_(std::move(pieces)), batches_(stage_, opening_) {}
  void read(InputStep<C>& step) override {
    const std::optional<std::int64_t> rows = batches_.next_pieces(pieces_, step.pieces);
    step.is_end = !rows;
    step.rows = rows.value_or(0);
  }
  Bytes position() const override { return batches_.position(); }
  void seek(std::span<const std::byte> position) override { batches_.seek(position); }
  std::int64_t length() const override { return stage_->length(); }
  std::unique_ptr<StepSource<C>> reopen() const override {
    return std::make_unique<SharedSequence>(stage_, opening_, pieces_);
  }

 private:
  data::SharedStage<C> stage_;
  data::Opening opening_;
  data::BatchPieces pieces_;
  DatasetIterator<E> batches_;
};

// Reads the rows of batches of this process's own. The sizes of its pieces follow one another in a cycle.
template <class E>
class OwnRows final : public StepSource<data::Columns<E>> {
 public:
  using C = data::Columns<E>;
  // The sizes are positive. `first` is the place in the cycle of the first of the `pieces` of each step.
  OwnRows(data::SharedStage<C> stage, const data::Opening& opening, std::vector<std::int64_t> cycle, std::size_t first,
          std::size_t pieces)
      : stage_(std::move(stage)),
        opening_(opening),
        cycle_(std::move(cycle)),
        first_(first),
        pieces_(pieces),
        next_(first),
        rows_(std::make_shared<data::UnbatchStage<C>>(stage_), opening_) {}
  void read(InputStep<C>& step) override {
    step.rows = 0;
    for (C& piece : step.pieces) {
      data::clear(piece);
      data::zip_columns(
          piece, like_,
          [](auto& to, const auto& from) {
            if (from.rows() > 0) to.append(from.shape(0).without(0), 0);
          },
          std::make_index_sequence<std::tuple_size_v<C>>());
      const auto size = static_cast<std::size_t>(cycle_[std::exchange(next_, (next_ + 1) % cycle_.size())]);
      const std::size_t found = rows_.read_all(piece, size);
      step.rows += static_cast<std::int64_t>(found);
      data::for_each_column(piece, [&](auto& column) { group(column); });
      if (found > 0 && data::rows_of(like_) == 0) make_empty(like_, piece);
    }
    step.is_end = step.rows == 0;
  }
  Bytes position() const override {
    const Bytes rows = rows_.position();
    Writer writer;
    writer.put(static_cast<std::uint64_t>(next_)).put(std::span<const std::byte>(rows));
    return writer.take();
  }
  void seek(std::span<const std::byte> position) override {
    Reader reader(position);
    const auto next = reader.get<std::uint64_t>();
    data::check_position(next < cycle_.size());
    rows_.seek(reader.get_bytes());
    next_ = next;
  }
  std::int64_t length() const override {
    const std::int64_t rows = stage_->row_count();
    if (rows < 0) return rows;
    // After as many steps as there are sizes, each size has come as often as a step has pieces.
    const std::int64_t lap =
        std::accumulate(cycle_.begin(), cycle_.end(), std::int64_t{0}) * static_cast<std::int64_t>(pieces_);
    std::int64_t steps = rows / lap * static_cast<std::int64_t>(cycle_.size());
    std::size_t place = first_;
    for (std::int64_t left = rows % lap; left > 0; ++steps) {
      for (std::size_t i = 0; i < pieces_; ++i) left -= cycle_[place++ % cycle_.size()];
    }
    return steps;
  }
  std::unique_ptr<StepSource<C>> reopen() const override {
    return std::make_unique<OwnRows>(stage_, opening_, cycle_, first_, pieces_);
  }

 private:
  template <class T>
  void group(data::Column<T>& column) const {
    if (!column.has_equal_shapes())
      throw Error(Code::usage,
                  text("a replica's rows from two batches of ", stage_->describe(), " have different shapes, such as ",
                       column.shape(0).to_string()),
                  "give the rows of all batches one shape, or use DATA sharding");
    column.group();
  }

  data::SharedStage<C> stage_;
  data::Opening opening_;
  std::vector<std::int64_t> cycle_;
  std::size_t first_;
  std::size_t pieces_;
  std::size_t next_;
  DatasetIterator<E> rows_;
  C like_;  // Holds an empty batch.
};

// Reads an element of this process's own data sets for each replica: from one data set in turns, or from one for each.
template <class E>
class OwnElements final : public StepSource<data::Columns<E>> {
 public:
  using C = data::Columns<E>;
  OwnElements(std::vector<Dataset<E>> datasets, std::size_t pieces)
      : datasets_(std::move(datasets)), pieces_(pieces), pipeline_(datasets_.front().describe()) {
    for (const Dataset<E>& each : datasets_) openings_.push_back(data::opening_of(*each.stage()));
    iterators_ = at_the_beginning();
  }
  void read(InputStep<C>& step) override {
    step.rows = 0;
    step.is_end = true;
    for (std::size_t i = 0; i < step.pieces.size(); ++i) {
      C& piece = step.pieces[i];
      data::clear(piece);
      if (iterators_[i % iterators_.size()].read_all(piece, 1) == 0) {
        make_empty(piece, like_);
        continue;
      }
      step.rows += data::rows_in_batch(piece, pipeline_);
      step.is_end = false;
      if (data::rows_of(like_) == 0) make_empty(like_, piece);
    }
  }
  Bytes position() const override {
    Writer writer;
    for (const DatasetIterator<E>& each : iterators_) {
      const Bytes position = each.position();
      writer.put(std::span<const std::byte>(position));
    }
    return writer.take();
  }
  void seek(std::span<const std::byte> position) override {
    Reader reader(position);
    std::vector<DatasetIterator<E>> there = at_the_beginning();
    for (DatasetIterator<E>& each : there) each.seek(reader.get_bytes());
    reader.expect_done();
    iterators_ = std::move(there);
  }
  std::int64_t length() const override {
    const auto turns = static_cast<std::int64_t>(pieces_ / datasets_.size());
    std::int64_t longest = 0;
    for (const Dataset<E>& each : datasets_) {
      const std::int64_t length = each.length();
      if (length < 0) return length;
      longest = std::max(longest, (length + turns - 1) / turns);
    }
    return longest;
  }
  std::unique_ptr<StepSource<C>> reopen() const override { return std::make_unique<OwnElements>(*this, openings_); }
  // Reads in the orders of another one.
  OwnElements(const OwnElements& like, std::vector<data::Opening> openings)
      : datasets_(like.datasets_),
        pieces_(like.pieces_),
        pipeline_(like.pipeline_),
        openings_(std::move(openings)),
        iterators_(at_the_beginning()) {}

 private:
  std::vector<DatasetIterator<E>> at_the_beginning() const {
    std::vector<DatasetIterator<E>> all;
    for (std::size_t i = 0; i < datasets_.size(); ++i) all.emplace_back(datasets_[i].stage(), openings_[i]);
    return all;
  }

  std::vector<Dataset<E>> datasets_;
  std::size_t pieces_;
  std::string pipeline_;
  std::vector<data::Opening> openings_;
  std::vector<DatasetIterator<E>> iterators_;
  C like_;  // Holds an empty batch.
};

}  // namespace lockstep::detail
