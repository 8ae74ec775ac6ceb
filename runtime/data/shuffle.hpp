// SPDX-License-Identifier: Apache-2.0
// Defines the stage that draws rows from a buffer at random. A stage above with numbered rows gives numbers into the
// buffer, not rows; a buffer for all of them needs no memory. Every draw follows from the seed, so a position is a
// count. Pure.
#pragma once

#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/data/random.hpp"
#include "runtime/data/stages.hpp"

namespace lockstep::data {

struct ShuffleOptions {
  std::optional<std::uint64_t> seed = std::nullopt;  // By default, each pipeline gets a seed of its own.
  bool reshuffle_each_iteration = true;              // Gives each lap and each iterator another order.
};

// Draws from a buffer of `size` rows.
template <class C>
class ShuffleStage final : public FollowingStage<C, C> {
 public:
  ShuffleStage(SharedStage<C> upstream, std::int64_t size, ShuffleOptions options)
      : ShuffleStage(std::move(upstream), size, options, std::make_shared<const OrderSource>(options.seed)) {}
  ShuffleStage(SharedStage<C> upstream, std::int64_t size, ShuffleOptions options,
               std::shared_ptr<const OrderSource> orders)
      : FollowingStage<C, C>(std::move(upstream)), size_(size), options_(options), orders_(std::move(orders)) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    const std::optional<Order> own = opening.find(orders_.get());
    const Order order = own ? *own : Order{options_.seed.value_or(opening.seed), 0};
    const RandomKey key{order.seed,
                        options_.reshuffle_each_iteration ? random_bits({order.seed, order.loop}, opening.epoch) : 0};
    if (!this->upstream().is_indexed())
      return std::make_unique<BufferCursor<Rows>>(Rows(this->upstream().open(opening)), size_, key);
    if (is_permutation()) return std::make_unique<PermutationCursor>(this->upstream(), key);
    return std::make_unique<BufferCursor<Numbers>>(Numbers(this->upstream()), size_, key);
  }
  std::int64_t length() const override { return this->upstream().length(); }
  bool needs_single_reads() const override { return !is_permutation() || this->upstream().needs_single_reads(); }
  void add_shuffles(std::vector<const OrderSource*>& to) const override {
    this->upstream().add_shuffles(to);
    to.push_back(orders_.get());
  }

 private:
  // Reads all rows of an indexed stage in the order of a permutation.
  class PermutationCursor final : public Cursor<C> {
   public:
    PermutationCursor(const Stage<C>& upstream, RandomKey key)
        : upstream_(upstream),
          length_(static_cast<std::uint64_t>(upstream.length())),
          permutation_(key, static_cast<std::uint64_t>(upstream.length())) {}
    void save(Writer& to) const override { to.put(next_); }
    void seek(Reader& from) override {
      next_ = from.get<std::uint64_t>();
      check_position(next_ <= length_);
    }

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      numbers_.resize(std::min<std::uint64_t>(max_rows, length_ - next_));
      if (numbers_.empty()) return;
      for (std::int64_t& number : numbers_) number = static_cast<std::int64_t>(permutation_(next_++));
      upstream_.gather(numbers_, out);
    }
    std::size_t skip_rows(std::size_t rows) override {
      const std::uint64_t number = std::min<std::uint64_t>(rows, length_ - next_);
      next_ += number;
      return number;
    }

    const Stage<C>& upstream_;
    std::uint64_t length_;
    Permutation permutation_;
    std::uint64_t next_ = 0;
    std::vector<std::int64_t> numbers_;
  };

  // Gives the numbers of an indexed stage into the buffer.
  class Numbers {
   public:
    using Item = std::int64_t;
    explicit Numbers(const Stage<C>& upstream) : upstream_(upstream), length_(upstream.length()) {}
    std::optional<Item> next() { return next_ < length_ ? std::optional(next_++) : std::nullopt; }
    void append(C& out, std::span<const Item> drawn) { upstream_.gather(drawn, out); }
    void save(Writer& to, std::span<const Item> buffer) const { to.put(next_).put(std::as_bytes(buffer)); }
    std::vector<Item> seek(Reader& from) {
      next_ = from.get<std::int64_t>();
      const Bytes bytes = from.get_bytes();
      std::vector<Item> buffer(bytes.size() / sizeof(Item));
      if (!buffer.empty()) std::memcpy(buffer.data(), bytes.data(), buffer.size() * sizeof(Item));
      check_position(next_ >= 0 && next_ <= length_);
      for (const Item number : buffer) check_position(number >= 0 && number < length_);
      return buffer;
    }

   private:
    const Stage<C>& upstream_;
    std::int64_t length_;
    std::int64_t next_ = 0;
  };

  // Gives rows into the buffer.
  class Rows {
   public:
    using Item = C;
    explicit Rows(std::unique_ptr<Cursor<C>> upstream) : upstream_(std::move(upstream)) {}
    std::optional<Item> next() {
      C row;
      return upstream_->read(row, 1) == 0 ? std::nullopt : std::optional(std::move(row));
    }
    void append(C& out, std::span<const Item> drawn) {
      for (const Item& each : drawn) append_rows(out, each, 0, 1);
    }
    void save(Writer& to, std::span<const Item> buffer) const {
      to.put(static_cast<std::uint64_t>(buffer.size()));
      for (const Item& each : buffer) for_each_column(each, [&](const auto& column) { column.save(to); });
      upstream_->save(to);
    }
    std::vector<Item> seek(Reader& from) {
      std::vector<Item> buffer;
      const auto number = from.get<std::uint64_t>();
      for (std::uint64_t i = 0; i < number; ++i) {
        C row;
        for_each_column(row, [&](auto& column) {
          column.load(from);
          check_position(column.rows() == 1);
        });
        buffer.push_back(std::move(row));
      }
      upstream_->seek(from);
      return buffer;
    }

   private:
    std::unique_ptr<Cursor<C>> upstream_;
  };

  template <class Source>
  class BufferCursor final : public Cursor<C> {
   public:
    BufferCursor(Source source, std::int64_t size, RandomKey key)
        : source_(std::move(source)), size_(static_cast<std::size_t>(size)), key_(key) {}
    void save(Writer& to) const override {
      to.put(drawn_).put(has_begun_);
      source_.save(to, buffer_);
    }
    void seek(Reader& from) override {
      drawn_ = from.get<std::uint64_t>();
      has_begun_ = from.get<bool>();
      buffer_ = source_.seek(from);
      check_position(buffer_.size() <= size_);
    }

   private:
    using Item = typename Source::Item;

    void read_rows(C& out, std::size_t max_rows) override {
      if (!has_begun_) fill();
      drawn_items_.clear();
      while (drawn_items_.size() < max_rows && !buffer_.empty()) draw();
      if (!drawn_items_.empty()) source_.append(out, drawn_items_);
    }
    std::size_t skip_rows(std::size_t rows) override {
      if (!has_begun_) fill();
      drawn_items_.clear();
      while (drawn_items_.size() < rows && !buffer_.empty()) draw();
      return drawn_items_.size();
    }
    void fill() {
      has_begun_ = true;
      while (buffer_.size() < size_) {
        std::optional<Item> item = source_.next();
        if (!item) break;
        buffer_.push_back(std::move(*item));
      }
    }
    // Draws one item; the next one of the source takes its place.
    void draw() {
      std::optional<Item> item = source_.next();
      const std::size_t place = random_below(key_, drawn_, buffer_.size());
      ++drawn_;
      if (item) {
        drawn_items_.push_back(std::exchange(buffer_[place], std::move(*item)));
      } else {
        if (place + 1 < buffer_.size()) std::swap(buffer_[place], buffer_.back());
        drawn_items_.push_back(std::move(buffer_.back()));
        buffer_.pop_back();
      }
    }

    Source source_;
    std::size_t size_;
    RandomKey key_;
    std::vector<Item> buffer_;
    std::vector<Item> drawn_items_;
    std::uint64_t drawn_ = 0;
    bool has_begun_ = false;
  };

  // True if the buffer has space for all rows, which are numbered.
  bool is_permutation() const {
    const Stage<C>& upstream = this->upstream();
    return upstream.is_indexed() && upstream.length() > 0 && size_ >= upstream.length();
  }
  std::string name() const override {
    const bool holds_all = size_ == std::numeric_limits<std::int64_t>::max();
    return text("shuffle(", holds_all ? "all" : text(size_), options_.seed ? text(", seed ", *options_.seed) : "",
                options_.reshuffle_each_iteration ? ")" : ", one order)");
  }

  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<ShuffleStage>(std::move(upstream), size_, options_, orders_);
  }

  std::int64_t size_;
  ShuffleOptions options_;
  std::shared_ptr<const OrderSource> orders_;
};

}  // namespace lockstep::data
