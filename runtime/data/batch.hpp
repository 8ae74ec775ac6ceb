// SPDX-License-Identifier: Apache-2.0
// Defines the stages that make one row of several, and the reverse: batch, padded_batch and unbatch. A batch is read
// straight into its memory. Pure.
#pragma once

#include <memory>
#include <optional>
#include <utility>

#include "runtime/data/padding.hpp"
#include "runtime/data/stages.hpp"

namespace lockstep::data {

struct BatchOptions {
  bool drop_remainder = false;  // Leaves out a last batch with fewer elements.
};

// Makes one row of `size` rows, which have equal shapes without a padding.
template <class C>
class BatchStage final : public FollowingStage<C, C> {
 public:
  BatchStage(SharedStage<C> upstream, std::size_t size, BatchOptions options)
      : FollowingStage<C, C>(std::move(upstream)), size_(size), options_(options) {}
  BatchStage(SharedStage<C> upstream, std::size_t size, PaddingOptions padding)
      : FollowingStage<C, C>(std::move(upstream)),
        size_(size),
        options_{.drop_remainder = padding.drop_remainder},
        padding_(std::move(padding)) {}
  BatchStage(SharedStage<C> upstream, const BatchStage& like)
      : FollowingStage<C, C>(std::move(upstream)),
        size_(like.size_),
        options_(like.options_),
        padding_(like.padding_) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<BatchCursor>(*this, this->upstream().open(opening));
  }
  std::int64_t length() const override {
    const std::int64_t rows = this->upstream().length();
    const std::int64_t size = batch_size();
    return rows < 0 ? rows : rows / size + (!options_.drop_remainder && rows % size != 0 ? 1 : 0);
  }
  std::int64_t batch_size() const override { return static_cast<std::int64_t>(size_); }
  std::int64_t row_count() const override {
    const std::int64_t rows = this->upstream().length();
    return rows < 0 || !options_.drop_remainder ? rows : rows / batch_size() * batch_size();
  }

 private:
  class BatchCursor final : public FollowingCursor<C, C> {
   public:
    BatchCursor(const BatchStage& stage, std::unique_ptr<Cursor<C>> upstream)
        : FollowingCursor<C, C>(std::move(upstream)), stage_(stage) {}

   private:
    // Reads the first batch straight into `out`, unless its rows are padded.
    void read_rows(C& out, std::size_t max_rows) override {
      for (std::size_t i = 0; i < max_rows; ++i) {
        const bool is_direct = rows_of(out) == 0 && !stage_.padding_;
        C& rows = is_direct ? out : rows_;
        clear(rows);
        const std::size_t found = this->upstream().read_all(rows, stage_.size_);
        if (found == 0 || (found < stage_.size_ && stage_.options_.drop_remainder)) return clear(rows);
        if (stage_.padding_)
          append_padded(out);
        else
          group(rows);
        if (!stage_.padding_ && !is_direct) append_rows(out, rows_, 0, 1);
      }
    }
    // Reads only its pieces, if their places are known before the batch has been read. The first batch is read as a
    // whole, so that later pieces without rows have a shape.
    std::optional<std::int64_t> read_batch_pieces(const BatchPieces& pieces, std::span<C> out) override {
      if (stage_.padding_) return Cursor<C>::read_batch_pieces(pieces, out);
      if (has_shapes_ && pieces.is_cut_at_end) return read_pieces_alone(pieces.of(stage_.batch_size()), out);
      clear(rows_);
      const std::size_t found = this->upstream().read_all(rows_, stage_.size_);
      if (found == 0 || (found < stage_.size_ && stage_.options_.drop_remainder)) return std::nullopt;
      for_each_column(rows_, [&](const auto& column) {
        if (!column.has_equal_shapes()) refuse(column);
      });
      has_shapes_ = true;
      divide_rows(rows_, pieces.of(static_cast<std::int64_t>(found)), out);
      truncate(rows_, 1);
      return static_cast<std::int64_t>(found);
    }
    std::optional<std::int64_t> read_pieces_alone(const std::vector<RowRange>& kept, std::span<C> out) {
      std::int64_t row = 0;
      const auto skip_to = [&](std::int64_t next) {
        row += static_cast<std::int64_t>(this->upstream().skip(static_cast<std::size_t>(next - row)));
      };
      for (std::size_t i = 0; i < kept.size(); ++i) {
        skip_to(kept[i].first);
        clear(out[i]);
        zip_columns(
            out[i], rows_, [](auto& to, const auto& like) { to.append(like.shape(0), 0); },
            std::make_index_sequence<std::tuple_size_v<C>>());
        row += static_cast<std::int64_t>(this->upstream().read_all(out[i], static_cast<std::size_t>(kept[i].count)));
        group(out[i]);
      }
      skip_to(stage_.batch_size());
      if (row == 0 || (row < stage_.batch_size() && stage_.options_.drop_remainder)) return std::nullopt;
      return row;
    }
    void group(C& rows) const {
      try {
        for_each_column(rows, [&](auto& column) {
          if (!column.has_equal_shapes()) refuse(column);
          column.group();
        });
      } catch (...) {
        clear(rows);
        throw;
      }
    }
    template <class T>
    [[noreturn]] void refuse(const Column<T>& column) const {
      std::size_t other = 1;
      while (column.shape(other) == column.shape(0)) ++other;
      throw Error(Code::usage,
                  text(stage_.describe(), " has elements of different shapes: ", column.shape(0).to_string(), " and ",
                       column.shape(other).to_string()),
                  "give them one shape by map(), or use padded_batch()");
    }
    void append_padded(C& out) const {
      std::size_t column = 0;
      zip_columns(
          out, rows_, [&](auto& to, const auto& from) { stage_.padding_->append(to, from, column++, stage_); },
          std::make_index_sequence<std::tuple_size_v<C>>());
    }

    const BatchStage& stage_;
    C rows_;
    bool has_shapes_ = false;  // True if the first row of `rows_` has the shape of all.
  };

  std::string name() const override {
    return text(padding_ ? "padded_batch(" : "batch(", size_, options_.drop_remainder ? ", drop_remainder" : "",
                padding_ ? padding_->describe() : "", ')');
  }

  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<BatchStage>(std::move(upstream), *this);
  }

  std::size_t size_;
  BatchOptions options_;
  std::optional<PaddingRule<C>> padding_;
};

// Makes a row of each row of a batch.
template <class C>
class UnbatchStage final : public FollowingStage<C, C> {
 public:
  explicit UnbatchStage(SharedStage<C> upstream) : FollowingStage<C, C>(std::move(upstream)) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<UnbatchCursor>(*this, this->upstream().open(opening));
  }
  std::int64_t length() const override {
    const std::int64_t batches = this->upstream().length();
    return batches == 0 ? 0 : unknown_length;
  }
  std::int64_t batch_size() const override { return unknown_length; }

 private:
  class UnbatchCursor final : public Cursor<C> {
   public:
    UnbatchCursor(const UnbatchStage& stage, std::unique_ptr<Cursor<C>> upstream)
        : stage_(stage), upstream_(std::move(upstream)), before_(position_of(*upstream_)) {}
    void save(Writer& to) const override {
      to.put(static_cast<std::uint64_t>(next_));
      to.put(std::span<const std::byte>(before_));
    }
    void seek(Reader& from) override {
      const auto next = from.get<std::uint64_t>();
      before_ = from.get_bytes();
      seek_to(*upstream_, before_);
      next_ = length_ = 0;
      clear(batch_);
      if (next == 0) return;
      check_position(fill() && next <= length_);
      next_ = next;
    }

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      while (next_ == length_) {
        if (!fill()) return;
      }
      const std::size_t number = std::min(max_rows, length_ - next_);
      zip_columns(
          out, batch_,
          [&]<class T>(Column<T>& to, const Column<T>& from) {
            const TensorShape row = from.shape(0).without(0);
            detail::copy_elements(from.row(0) + next_ * row.count(), number * row.count(), to.append(row, number));
          },
          std::make_index_sequence<std::tuple_size_v<C>>());
      next_ += number;
    }
    // Reads the next batch; false at the end.
    bool fill() {
      before_ = position_of(*upstream_);
      next_ = length_ = 0;
      clear(batch_);
      if (upstream_->read(batch_, 1) == 0) return false;
      const TensorShape first = std::get<0>(batch_).shape(0);
      for_each_column(batch_, [&](const auto& column) {
        const TensorShape& shape = column.shape(0);
        if (shape.rank() > 0 && first.rank() > 0 && shape[0] == first[0]) return;
        throw Error(
            Code::usage,
            text(stage_.describe(), " has an element with the shapes ", first.to_string(), " and ", shape.to_string()),
            "unbatch() takes tensors with the same number of rows");
      });
      length_ = static_cast<std::size_t>(first[0]);
      return true;
    }

    const UnbatchStage& stage_;
    std::unique_ptr<Cursor<C>> upstream_;
    Bytes before_;  // Holds the upstream's position before the batch.
    C batch_;
    std::size_t next_ = 0;
    std::size_t length_ = 0;
  };

  std::string name() const override { return "unbatch"; }
  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<UnbatchStage>(std::move(upstream));
  }
};

}  // namespace lockstep::data
