// SPDX-License-Identifier: Apache-2.0
// Defines the stages that change or choose the rows of one stage: map, filter, take, skip and shard; and the base of
// all stages that have one above them. Pure.
#pragma once

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/data/row_positions.hpp"
#include "runtime/data/stage.hpp"

namespace lockstep::data {

// Calls a function with an element, or with the parts of a tuple.
template <class F, class E>
inline constexpr bool takes_element = std::is_invocable_v<F&, const E&>;
template <class F, class E>
inline constexpr bool takes_parts = false;
template <class F, class... E>
inline constexpr bool takes_parts<F, std::tuple<E...>> = std::is_invocable_v<F&, const E&...>;
template <class F, class A, class B>
inline constexpr bool takes_parts<F, std::pair<A, B>> = std::is_invocable_v<F&, const A&, const B&>;

template <class F, class E>
decltype(auto) call_with(F& function, const E& element) {
  if constexpr (takes_element<F, E>) {
    return function(element);
  } else if constexpr (takes_parts<F, E>) {
    return std::apply(function, element);
  } else {
    static_assert(takes_element<F, E>,
                  "lockstep: the function must be callable with an element of the data set, or with a tuple's parts");
    return element;
  }
}

// Returns the length of `number` rows from row `first` on; `number` is infinite for all.
inline std::int64_t length_of_part(std::int64_t length, std::int64_t first, std::int64_t number) {
  if (length == unknown_length) return number == 0 ? 0 : unknown_length;
  if (length == infinite) return number;
  const std::int64_t left = std::max<std::int64_t>(0, length - first);
  return number == infinite ? left : std::min(left, number);
}

// Returns a copy of a program's function. Throws Error usage if it has none.
template <class F>
F copy_of(const F& function) {
  if constexpr (std::is_copy_constructible_v<F>)
    return function;
  else
    throw Error(Code::usage, "a pipeline is divided among processes, and one of its functions cannot be copied",
                "let it hold its resources by std::shared_ptr");
}

// Holds the stage above. A stage with one upstream takes its describe() from it.
template <class In, class Out>
class FollowingStage : public Stage<Out> {
 public:
  explicit FollowingStage(SharedStage<In> upstream) : upstream_(std::move(upstream)) {}
  std::string describe() const override { return text(upstream_->describe(), " | ", name()); }
  bool needs_single_reads() const override { return upstream_->needs_single_reads(); }
  void add_shuffles(std::vector<const OrderSource*>& to) const override { upstream_->add_shuffles(to); }
  std::int64_t batch_size() const override { return upstream_->batch_size(); }
  std::int64_t file_count() const override { return upstream_->file_count(); }
  Sharding sharding() const override { return upstream_->sharding(); }
  SharedStage<Out> with_input(const InputPart& part) const override {
    SharedStage<In> changed = upstream_->with_input(part);
    return changed ? on(std::move(changed)) : nullptr;
  }

 protected:
  const Stage<In>& upstream() const { return *upstream_; }
  const SharedStage<In>& shared_upstream() const { return upstream_; }
  virtual std::string name() const = 0;  // Returns "batch(3)".
  // Returns this stage after another one.
  virtual SharedStage<Out> on(SharedStage<In> upstream) const = 0;

 private:
  SharedStage<In> upstream_;
};

// Reads a cursor whose position is its own.
template <class In, class Out>
class FollowingCursor : public Cursor<Out> {
 public:
  explicit FollowingCursor(std::unique_ptr<Cursor<In>> upstream) : upstream_(std::move(upstream)) {}
  void save(Writer& to) const override { upstream_->save(to); }
  void seek(Reader& from) override { upstream_->seek(from); }
  bool has_failed() const override { return Cursor<Out>::has_failed() || upstream_->has_failed(); }

 protected:
  Cursor<In>& upstream() { return *upstream_; }
  const Cursor<In>& upstream() const { return *upstream_; }

 private:
  std::unique_ptr<Cursor<In>> upstream_;
};

// Has the rows of the stage above, and options for distribute().
template <class C>
class OptionsStage final : public FollowingStage<C, C> {
 public:
  OptionsStage(SharedStage<C> upstream, const DatasetOptions& options)
      : FollowingStage<C, C>(std::move(upstream)), options_(options) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override { return this->upstream().open(opening); }
  std::int64_t length() const override { return this->upstream().length(); }
  std::string describe() const override { return this->upstream().describe(); }
  bool is_indexed() const override { return this->upstream().is_indexed(); }
  void gather(std::span<const std::int64_t> numbers, C& out) const override { this->upstream().gather(numbers, out); }
  std::int64_t row_count() const override { return this->upstream().row_count(); }
  Sharding sharding() const override { return options_.sharding; }

 private:
  std::string name() const override { return "with_options"; }
  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<OptionsStage>(std::move(upstream), options_);
  }

  DatasetOptions options_;
};

// Appends the results of a function for rows of E. Leaves those before an exception in `out`.
template <class E, class R, class F, class In, class C>
void append_results(F& function, const In& rows, std::size_t first, std::size_t number, C& out) {
  if constexpr (Number<E> && Number<R>) {
    const std::size_t before = rows_of(out);
    const E* const from = std::get<0>(rows).row(first);
    R* const to = std::get<0>(out).append(TensorShape(), number);
    std::size_t done = 0;
    try {
      for (; done < number; ++done) to[done] = static_cast<R>(function(from[done]));
    } catch (...) {
      truncate(out, before + done);
      throw;
    }
  } else {
    E element{};
    for (std::size_t i = first; i < first + number; ++i) {
      read_element(rows, i, element);
      append_element(out, R(call_with(function, element)));
    }
  }
}

// Calls a function with each element.
template <class E, class R, class F>
class MapStage final : public FollowingStage<Columns<E>, Columns<R>> {
 public:
  using In = Columns<E>;
  using C = Columns<R>;
  MapStage(SharedStage<In> upstream, F function)
      : FollowingStage<In, C>(std::move(upstream)), function_(std::move(function)) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<MapCursor>(function_, this->upstream().open(opening));
  }
  std::int64_t length() const override { return this->upstream().length(); }
  bool is_indexed() const override { return this->upstream().is_indexed(); }
  void gather(std::span<const std::int64_t> numbers, C& out) const override {
    In rows;
    this->upstream().gather(numbers, rows);
    append_results<E, R>(function_, rows, 0, rows_of(rows), out);
  }

 private:
  class MapCursor final : public FollowingCursor<In, C> {
   public:
    MapCursor(F& function, std::unique_ptr<Cursor<In>> upstream)
        : FollowingCursor<In, C>(std::move(upstream)), function_(function) {}
    // Writes a position as ParallelMapCursor does.
    void save(Writer& to) const override { save_behind(0, position_of(this->upstream()), to); }
    void seek(Reader& from) override { seek_behind(this->upstream(), from); }

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      clear(rows_);
      this->upstream().read(rows_, max_rows);
      append_results<E, R>(function_, rows_, 0, rows_of(rows_), out);
    }
    std::size_t skip_rows(std::size_t rows) override { return this->upstream().skip(rows); }

    F& function_;
    In rows_;
  };

  std::string name() const override { return "map"; }
  SharedStage<C> on(SharedStage<In> upstream) const override {
    return std::make_shared<MapStage>(std::move(upstream), copy_of(function_));
  }

  mutable F function_;  // A lambda may be mutable; several threads must not read such a pipeline at once.
};

// Keeps the elements for which a function is true.
template <class E, class F>
class FilterStage final : public FollowingStage<Columns<E>, Columns<E>> {
 public:
  using C = Columns<E>;
  FilterStage(SharedStage<C> upstream, F function)
      : FollowingStage<C, C>(std::move(upstream)), function_(std::move(function)) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<FilterCursor>(function_, this->upstream().open(opening));
  }
  std::int64_t length() const override { return this->upstream().length() == 0 ? 0 : unknown_length; }

 private:
  class FilterCursor final : public FollowingCursor<C, C> {
   public:
    FilterCursor(F& function, std::unique_ptr<Cursor<C>> upstream)
        : FollowingCursor<C, C>(std::move(upstream)), function_(function) {}

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      E element{};
      for (bool has_found = false; !has_found;) {
        clear(rows_);
        const std::size_t number = this->upstream().read(rows_, max_rows);
        if (number == 0) return;
        for (std::size_t i = 0; i < number; ++i) {
          read_element(rows_, i, element);
          if (!call_with(function_, element)) continue;
          append_rows(out, rows_, i, 1);
          has_found = true;
        }
      }
    }

    F& function_;
    C rows_;
  };

  std::string name() const override { return "filter"; }
  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<FilterStage>(std::move(upstream), copy_of(function_));
  }

  mutable F function_;
};

// Has `number` rows from row `first` on; `number` is infinite for all.
template <class C>
class PartStage final : public FollowingStage<C, C> {
 public:
  PartStage(SharedStage<C> upstream, std::int64_t first, std::int64_t number, std::string name)
      : FollowingStage<C, C>(std::move(upstream)), first_(first), number_(number), name_(std::move(name)) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<PartCursor>(this->upstream().open(opening), first_, number_);
  }
  std::int64_t length() const override { return length_of_part(this->upstream().length(), first_, number_); }
  bool is_indexed() const override { return this->upstream().is_indexed(); }
  void gather(std::span<const std::int64_t> numbers, C& out) const override {
    std::vector<std::int64_t> theirs(numbers.begin(), numbers.end());
    for (std::int64_t& number : theirs) number += first_;
    this->upstream().gather(theirs, out);
  }
  void gather_range(std::int64_t first, std::size_t number, C& out) const override {
    this->upstream().gather_range(first_ + first, number, out);
  }

 private:
  class PartCursor final : public FollowingCursor<C, C> {
   public:
    PartCursor(std::unique_ptr<Cursor<C>> upstream, std::int64_t skipped, std::int64_t left)
        : FollowingCursor<C, C>(std::move(upstream)), to_skip_(skipped), left_(left) {}
    void save(Writer& to) const override {
      to.put(to_skip_).put(left_);
      FollowingCursor<C, C>::save(to);
    }
    void seek(Reader& from) override {
      to_skip_ = from.get<std::int64_t>();
      left_ = from.get<std::int64_t>();
      check_position(to_skip_ >= 0 && left_ >= infinite);
      FollowingCursor<C, C>::seek(from);
    }

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      if (left_ == 0) return;
      if (to_skip_ > 0) this->upstream().skip(static_cast<std::size_t>(std::exchange(to_skip_, 0)));
      const std::size_t wanted = left_ < 0 ? max_rows : std::min(max_rows, static_cast<std::size_t>(left_));
      const std::size_t found = this->upstream().read(out, wanted);
      if (left_ > 0) left_ -= static_cast<std::int64_t>(found);
    }

    std::int64_t to_skip_;
    std::int64_t left_;
  };

  std::string name() const override { return name_; }
  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<PartStage>(std::move(upstream), first_, number_, name_);
  }

  std::int64_t first_;
  std::int64_t number_;
  std::string name_;
};

// Has every `shards`-th row, beginning with row `index`.
template <class C>
class ShardStage final : public FollowingStage<C, C> {
 public:
  ShardStage(SharedStage<C> upstream, std::int64_t shards, std::int64_t index)
      : FollowingStage<C, C>(std::move(upstream)), shards_(shards), index_(index) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<ShardCursor>(*this, this->upstream().open(opening));
  }
  std::int64_t length() const override {
    const std::int64_t all = this->upstream().length();
    if (all < 0) return all;
    return all > index_ ? (all - index_ - 1) / shards_ + 1 : 0;
  }
  bool is_indexed() const override { return this->upstream().is_indexed(); }
  void gather(std::span<const std::int64_t> numbers, C& out) const override {
    std::vector<std::int64_t> theirs(numbers.begin(), numbers.end());
    for (std::int64_t& number : theirs) number = number * shards_ + index_;
    this->upstream().gather(theirs, out);
  }

 private:
  class ShardCursor final : public FollowingCursor<C, C> {
   public:
    ShardCursor(const ShardStage& stage, std::unique_ptr<Cursor<C>> upstream)
        : FollowingCursor<C, C>(std::move(upstream)), stage_(stage) {}
    void save(Writer& to) const override {
      to.put(next_);
      FollowingCursor<C, C>::save(to);
    }
    void seek(Reader& from) override {
      next_ = from.get<std::int64_t>();
      check_position(next_ >= 0);
      FollowingCursor<C, C>::seek(from);
    }

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      for (bool has_found = false; !has_found;) {
        clear(rows_);
        const std::size_t number = this->upstream().read(rows_, max_rows);
        if (number == 0) return;
        for (std::size_t i = 0; i < number; ++i, ++next_) {
          if (next_ % stage_.shards_ != stage_.index_) continue;
          append_rows(out, rows_, i, 1);
          has_found = true;
        }
      }
    }

    const ShardStage& stage_;
    C rows_;
    std::int64_t next_ = 0;
  };

  std::string name() const override { return text("shard(", shards_, ", ", index_, ')'); }
  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<ShardStage>(std::move(upstream), shards_, index_);
  }

  std::int64_t shards_;
  std::int64_t index_;
};

// Has all rows, until distribute() makes a ShardStage of it.
template <class C>
class ShardHintStage final : public FollowingStage<C, C> {
 public:
  using FollowingStage<C, C>::FollowingStage;
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override { return this->upstream().open(opening); }
  std::int64_t length() const override { return this->upstream().length(); }
  bool is_indexed() const override { return this->upstream().is_indexed(); }
  void gather(std::span<const std::int64_t> numbers, C& out) const override { this->upstream().gather(numbers, out); }
  SharedStage<C> with_input(const InputPart& part) const override {
    if (part.is_by_files) return FollowingStage<C, C>::with_input(part);
    return std::make_shared<ShardStage<C>>(this->shared_upstream(), part.shards, part.index);
  }

 private:
  std::string name() const override { return "shard(hint)"; }
  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<ShardHintStage>(std::move(upstream));
  }
};

}  // namespace lockstep::data
