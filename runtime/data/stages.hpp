// SPDX-License-Identifier: Apache-2.0
// Defines the stages that change, choose or order rows one by one: map, filter, take, skip, shard, repeat, concatenate,
// zip, enumerate, flat_map, interleave and cache. Pure.
#pragma once

#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

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

// Holds the stage above. A stage with one upstream takes its describe() from it.
template <class In, class Out>
class FollowingStage : public Stage<Out> {
 public:
  explicit FollowingStage(SharedStage<In> upstream) : upstream_(std::move(upstream)) {}
  std::string describe() const override { return text(upstream_->describe(), " | ", name()); }
  bool needs_single_reads() const override { return upstream_->needs_single_reads(); }
  void add_shuffles(std::vector<const OrderSource*>& to) const override { upstream_->add_shuffles(to); }
  std::int64_t batch_size() const override { return upstream_->batch_size(); }

 protected:
  const Stage<In>& upstream() const { return *upstream_; }
  virtual std::string name() const = 0;  // Returns "batch(3)".

 private:
  SharedStage<In> upstream_;
};

// Calls a function with each element.
template <class E, class R, class F>
class MapStage final : public FollowingStage<Columns<E>, Columns<R>> {
 public:
  using In = Columns<E>;
  using C = Columns<R>;
  MapStage(SharedStage<In> upstream, F function)
      : FollowingStage<In, C>(std::move(upstream)), function_(std::move(function)) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<MapCursor>(*this, this->upstream().open(opening));
  }
  std::int64_t length() const override { return this->upstream().length(); }
  bool is_indexed() const override { return this->upstream().is_indexed(); }
  void gather(std::span<const std::int64_t> numbers, C& out) const override {
    In rows;
    this->upstream().gather(numbers, rows);
    append_results(rows, out);
  }

 private:
  class MapCursor final : public Cursor<C> {
   public:
    MapCursor(const MapStage& stage, std::unique_ptr<Cursor<In>> upstream)
        : stage_(stage), upstream_(std::move(upstream)) {}
    void save(Writer& to) const override { upstream_->save(to); }
    void seek(Reader& from) override { upstream_->seek(from); }

   private:
    void read_rows(C& out, std::size_t most) override {
      clear(rows_);
      upstream_->read(rows_, most);
      stage_.append_results(rows_, out);
    }

    const MapStage& stage_;
    std::unique_ptr<Cursor<In>> upstream_;
    In rows_;
  };

  std::string name() const override { return "map"; }
  // Leaves the results before an exception in `out`.
  void append_results(const In& rows, C& out) const {
    if constexpr (Number<E> && Number<R>) {
      const std::size_t before = rows_of(out);
      const E* const from = std::get<0>(rows).row(0);
      R* const to = std::get<0>(out).append(TensorShape(), rows_of(rows));
      std::size_t done = 0;
      try {
        for (; done < rows_of(rows); ++done) to[done] = static_cast<R>(function_(from[done]));
      } catch (...) {
        truncate(out, before + done);
        throw;
      }
    } else {
      E element{};
      for (std::size_t i = 0; i < rows_of(rows); ++i) {
        read_element(rows, i, element);
        append_element(out, R(call_with(function_, element)));
      }
    }
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
  class FilterCursor final : public Cursor<C> {
   public:
    FilterCursor(F& function, std::unique_ptr<Cursor<C>> upstream)
        : function_(function), upstream_(std::move(upstream)) {}
    void save(Writer& to) const override { upstream_->save(to); }
    void seek(Reader& from) override { upstream_->seek(from); }

   private:
    void read_rows(C& out, std::size_t most) override {
      E element{};
      for (bool has_found = false; !has_found;) {
        clear(rows_);
        const std::size_t number = upstream_->read(rows_, most);
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
    std::unique_ptr<Cursor<C>> upstream_;
    C rows_;
  };

  std::string name() const override { return "filter"; }

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
  class PartCursor final : public Cursor<C> {
   public:
    PartCursor(std::unique_ptr<Cursor<C>> upstream, std::int64_t skipped, std::int64_t left)
        : upstream_(std::move(upstream)), to_skip_(skipped), left_(left) {}
    void save(Writer& to) const override {
      to.put(to_skip_).put(left_);
      upstream_->save(to);
    }
    void seek(Reader& from) override {
      to_skip_ = from.get<std::int64_t>();
      left_ = from.get<std::int64_t>();
      check_position(to_skip_ >= 0 && left_ >= infinite);
      upstream_->seek(from);
    }

   private:
    void read_rows(C& out, std::size_t most) override {
      if (left_ == 0) return;
      if (to_skip_ > 0) upstream_->skip(static_cast<std::size_t>(std::exchange(to_skip_, 0)));
      const std::size_t wanted = left_ < 0 ? most : std::min(most, static_cast<std::size_t>(left_));
      const std::size_t found = upstream_->read(out, wanted);
      if (left_ > 0) left_ -= static_cast<std::int64_t>(found);
    }

    std::unique_ptr<Cursor<C>> upstream_;
    std::int64_t to_skip_;
    std::int64_t left_;
  };

  std::string name() const override { return name_; }

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
  class ShardCursor final : public Cursor<C> {
   public:
    ShardCursor(const ShardStage& stage, std::unique_ptr<Cursor<C>> upstream)
        : stage_(stage), upstream_(std::move(upstream)) {}
    void save(Writer& to) const override {
      to.put(next_);
      upstream_->save(to);
    }
    void seek(Reader& from) override {
      next_ = from.get<std::int64_t>();
      check_position(next_ >= 0);
      upstream_->seek(from);
    }

   private:
    void read_rows(C& out, std::size_t most) override {
      for (bool has_found = false; !has_found;) {
        clear(rows_);
        const std::size_t number = upstream_->read(rows_, most);
        if (number == 0) return;
        for (std::size_t i = 0; i < number; ++i, ++next_) {
          if (next_ % stage_.shards_ != stage_.index_) continue;
          append_rows(out, rows_, i, 1);
          has_found = true;
        }
      }
    }

    const ShardStage& stage_;
    std::unique_ptr<Cursor<C>> upstream_;
    C rows_;
    std::int64_t next_ = 0;
  };

  std::string name() const override { return text("shard(", shards_, ", ", index_, ')'); }

  std::int64_t shards_;
  std::int64_t index_;
};

// Reads the stage above `count` times; infinite means for ever, or until a lap has no rows.
template <class C>
class RepeatStage final : public FollowingStage<C, C> {
 public:
  RepeatStage(SharedStage<C> upstream, std::int64_t count) : FollowingStage<C, C>(std::move(upstream)), count_(count) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<RepeatCursor>(*this, opening);
  }
  std::int64_t length() const override {
    const std::int64_t each = this->upstream().length();
    if (each == 0 || count_ == 0) return 0;
    if (each == infinite || count_ == infinite) return infinite;
    constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
    return each < 0 ? each : each > most / count_ ? infinite : each * count_;
  }

 private:
  class RepeatCursor final : public Cursor<C> {
   public:
    RepeatCursor(const RepeatStage& stage, const Opening& opening) : stage_(stage), opening_(opening) { begin(0); }
    void save(Writer& to) const override {
      to.put(lap_).put(has_rows_);
      lap_cursor_->save(to);
    }
    void seek(Reader& from) override {
      const auto lap = from.get<std::int64_t>();
      check_position(lap >= 0 && (stage_.count_ == infinite || lap <= stage_.count_));
      begin(lap);
      has_rows_ = from.get<bool>();
      lap_cursor_->seek(from);
    }

   private:
    void begin(std::int64_t lap) {
      lap_ = lap;
      has_rows_ = false;
      Opening opening = opening_;
      opening.epoch = opening.epoch * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(lap);
      lap_cursor_ = stage_.upstream().open(opening);
    }
    void read_rows(C& out, std::size_t most) override {
      if (stage_.upstream().length() == 0) return;
      while (lap_ != stage_.count_) {
        if (lap_cursor_->read(out, most) > 0) {
          has_rows_ = true;
          return;
        }
        if (!has_rows_ && stage_.count_ == infinite) return;
        begin(lap_ + 1);
      }
    }

    const RepeatStage& stage_;
    Opening opening_;
    std::unique_ptr<Cursor<C>> lap_cursor_;
    std::int64_t lap_ = 0;
    bool has_rows_ = false;  // True if this lap has had a row.
  };

  std::string name() const override { return text("repeat(", count_, ')'); }

  std::int64_t count_;
};

// Has the rows of one stage, and then those of another.
template <class C>
class ConcatenateStage final : public Stage<C> {
 public:
  ConcatenateStage(SharedStage<C> first, SharedStage<C> second) : parts_{std::move(first), std::move(second)} {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<ConcatenateCursor>(*this, opening);
  }
  std::int64_t length() const override {
    const std::int64_t a = parts_[0]->length();
    const std::int64_t b = parts_[1]->length();
    if (a == infinite || b == infinite) return infinite;
    if (a < 0 || b < 0) return unknown_length;
    return a > std::numeric_limits<std::int64_t>::max() - b ? infinite : a + b;
  }
  std::string describe() const override {
    return text(parts_[0]->describe(), " | concatenate(", parts_[1]->describe(), ')');
  }
  bool needs_single_reads() const override {
    return parts_[0]->needs_single_reads() || parts_[1]->needs_single_reads();
  }
  void add_shuffles(std::vector<const OrderSource*>& to) const override {
    for (const SharedStage<C>& each : parts_) each->add_shuffles(to);
  }
  std::int64_t batch_size() const override {
    return parts_[0]->batch_size() == parts_[1]->batch_size() ? parts_[0]->batch_size() : unknown_length;
  }

 private:
  class ConcatenateCursor final : public Cursor<C> {
   public:
    ConcatenateCursor(const ConcatenateStage& stage, const Opening& opening) : stage_(stage), opening_(opening) {
      begin(0);
    }
    void save(Writer& to) const override {
      to.put(static_cast<std::uint8_t>(part_));
      cursor_->save(to);
    }
    void seek(Reader& from) override {
      const auto part = from.get<std::uint8_t>();
      check_position(part <= 1);
      begin(part);
      cursor_->seek(from);
    }

   private:
    void begin(std::size_t part) {
      part_ = part;
      cursor_ = stage_.parts_[part]->open(opening_);
    }
    void read_rows(C& out, std::size_t most) override {
      if (cursor_->read(out, most) > 0 || part_ == 1) return;
      begin(1);
      cursor_->read(out, most);
    }

    const ConcatenateStage& stage_;
    Opening opening_;
    std::size_t part_ = 0;
    std::unique_ptr<Cursor<C>> cursor_;
  };

  SharedStage<C> parts_[2];
};

// Puts the rows of several stages side by side. It ends with the shortest one.
template <class... Cs>
class ZipStage final : public Stage<decltype(std::tuple_cat(std::declval<Cs>()...))> {
 public:
  using C = decltype(std::tuple_cat(std::declval<Cs>()...));
  explicit ZipStage(SharedStage<Cs>... stages) : stages_(std::move(stages)...) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::apply([&](const auto&... each) { return std::make_unique<ZipCursor>(each->open(opening)...); },
                      stages_);
  }
  std::int64_t length() const override {
    std::int64_t shortest = infinite;
    bool is_known = true;
    const auto add = [&](std::int64_t length) {
      is_known = is_known && length != unknown_length;
      if (length >= 0) shortest = shortest < 0 ? length : std::min(shortest, length);
    };
    std::apply([&](const auto&... each) { (add(each->length()), ...); }, stages_);
    return is_known || shortest == 0 ? shortest : unknown_length;
  }
  std::string describe() const override {
    std::vector<std::string> all;
    std::apply([&](const auto&... each) { (all.push_back(each->describe()), ...); }, stages_);
    return text("zip(", join(all, ", "), ')');
  }
  bool needs_single_reads() const override {
    return std::apply([](const auto&... each) { return (each->needs_single_reads() || ...); }, stages_);
  }
  void add_shuffles(std::vector<const OrderSource*>& to) const override {
    std::apply([&](const auto&... each) { (each->add_shuffles(to), ...); }, stages_);
  }
  std::int64_t batch_size() const override {
    const std::int64_t size = std::get<0>(stages_)->batch_size();
    const bool is_common =
        std::apply([&](const auto&... each) { return ((each->batch_size() == size) && ...); }, stages_);
    return is_common ? size : unknown_length;
  }

 private:
  class ZipCursor final : public Cursor<C> {
   public:
    explicit ZipCursor(std::unique_ptr<Cursor<Cs>>... cursors) : cursors_(std::move(cursors)...) {}
    void save(Writer& to) const override {
      to.put(has_ended_);
      std::apply([&](const auto&... each) { (each->save(to), ...); }, cursors_);
    }
    void seek(Reader& from) override {
      has_ended_ = from.get<bool>();
      std::apply([&](const auto&... each) { (each->seek(from), ...); }, cursors_);
    }

   private:
    void read_rows(C& out, std::size_t most) override {
      if (has_ended_) return;
      std::tuple<Cs...> rows;
      std::size_t number = most;
      bool is_first = true;
      for_each([&]<std::size_t i>(std::integral_constant<std::size_t, i> /*which*/) {
        auto& cursor = *std::get<i>(cursors_);
        const std::size_t found =
            is_first ? cursor.read(std::get<i>(rows), number) : cursor.read_until_failure(std::get<i>(rows), number);
        has_ended_ = has_ended_ || (found < number && !is_first && !cursor.has_failed()) || found == 0;
        number = std::min(number, found);
        is_first = false;
      });
      append_side_by_side(out, rows, number);
    }
    template <class F>
    static void for_each(F&& function) {
      [&]<std::size_t... i>(std::index_sequence<i...> /*stages*/) {
        (function(std::integral_constant<std::size_t, i>()), ...);
      }
      (std::index_sequence_for<Cs...>());
    }
    static void append_side_by_side(C& out, const std::tuple<Cs...>& rows, std::size_t number) {
      const auto all = std::apply([](const auto&... each) { return std::tuple_cat(tied(each)...); }, rows);
      [&]<std::size_t... i>(std::index_sequence<i...> /*columns*/) {
        (std::get<i>(out).append_rows(std::get<i>(all), 0, number), ...);
      }
      (std::make_index_sequence<std::tuple_size_v<C>>());
    }
    template <class Part>
    static auto tied(const Part& columns) {
      return std::apply([](const auto&... each) { return std::tie(each...); }, columns);
    }

    std::tuple<std::unique_ptr<Cursor<Cs>>...> cursors_;
    bool has_ended_ = false;
  };

  std::tuple<SharedStage<Cs>...> stages_;
};

// Reads the data set that a function makes of each element: `cycle` of them in turns, `block` rows of each at a time.
template <class E, class C, class F>
class InterleaveStage final : public FollowingStage<Columns<E>, C> {
 public:
  using In = Columns<E>;
  InterleaveStage(SharedStage<In> upstream, F function, std::size_t cycle, std::size_t block, std::string name)
      : FollowingStage<In, C>(std::move(upstream)),
        function_(std::move(function)),
        cycle_(cycle),
        block_(block),
        name_(std::move(name)) {}
  std::unique_ptr<Cursor<C>> open(const Opening& opening) const override {
    return std::make_unique<InterleaveCursor>(*this, opening);
  }
  std::int64_t length() const override { return this->upstream().length() == 0 ? 0 : unknown_length; }
  bool needs_single_reads() const override { return true; }
  std::int64_t batch_size() const override { return unknown_length; }

 private:
  // Is one of the data sets that are read in turns.
  struct Slot {
    Bytes before;              // Holds the upstream's position before its element.
    std::uint64_t number = 0;  // Counts the elements before it.
    SharedStage<C> stage;
    std::unique_ptr<Cursor<C>> cursor;
  };

  class InterleaveCursor final : public Cursor<C> {
   public:
    InterleaveCursor(const InterleaveStage& stage, const Opening& opening)
        : stage_(stage), opening_(opening), upstream_(stage.upstream().open(opening)), slots_(stage.cycle_) {}
    void save(Writer& to) const override {
      to.put(static_cast<std::uint64_t>(slot_)).put(static_cast<std::uint64_t>(in_block_)).put(has_ended_);
      for (const Slot& each : slots_) {
        to.put(each.cursor != nullptr);
        if (!each.cursor) continue;
        to.put(std::span<const std::byte>(each.before)).put(each.number);
        each.cursor->save(to);
      }
      to.put(elements_);
      upstream_->save(to);
    }
    void seek(Reader& from) override {
      slot_ = from.get<std::uint64_t>();
      in_block_ = from.get<std::uint64_t>();
      has_ended_ = from.get<bool>();
      check_position(slot_ < slots_.size() && in_block_ < stage_.block_);
      for (Slot& each : slots_) {
        close(each);
        if (!from.get<bool>()) continue;
        seek_to(*upstream_, from.get_bytes());
        elements_ = from.get<std::uint64_t>();
        check_position(fill(each));
        each.cursor->seek(from);
      }
      elements_ = from.get<std::uint64_t>();
      upstream_->seek(from);
    }

   private:
    void read_rows(C& out, std::size_t most) override {
      for (bool is_open = true; is_open;) {
        Slot& slot = slots_[slot_];
        if (slot.cursor) {
          const std::size_t found = slot.cursor->read(out, std::min(most, stage_.block_ - in_block_));
          in_block_ += found;
          if (found == 0) close(slot);
          if (found == 0 || in_block_ == stage_.block_) go_to_next_slot();
          if (found > 0) return;
        } else if (has_ended_ || !fill(slot)) {
          has_ended_ = true;
          go_to_next_slot();
        }
        is_open = !has_ended_ || std::ranges::any_of(slots_, [](const Slot& each) { return each.cursor != nullptr; });
      }
    }
    void go_to_next_slot() {
      slot_ = (slot_ + 1) % slots_.size();
      in_block_ = 0;
    }
    static void close(Slot& slot) {
      slot.cursor.reset();
      slot.stage.reset();
    }
    // Opens the data set of the next element; false if there is none.
    bool fill(Slot& slot) {
      Bytes before = position_of(*upstream_);
      clear(element_row_);
      if (upstream_->read(element_row_, 1) == 0) return false;
      E element{};
      read_element(element_row_, 0, element);
      slot.stage = call_with(stage_.function_, element).stage();
      slot.before = std::move(before);
      slot.number = elements_++;
      // Shuffles in it have no order in this opening. Those without a seed follow from the loop's.
      slot.cursor = slot.stage->open(
          {.orders = nullptr, .seed = random_bits({opening_.seed, opening_.epoch}, slot.number), .epoch = 0});
      return true;
    }

    const InterleaveStage& stage_;
    Opening opening_;
    std::unique_ptr<Cursor<In>> upstream_;
    std::vector<Slot> slots_;
    std::size_t slot_ = 0;
    std::size_t in_block_ = 0;    // Counts the rows that this turn has had.
    std::uint64_t elements_ = 0;  // Counts the elements that have been read.
    bool has_ended_ = false;      // True if the upstream has no more elements.
    In element_row_;
  };

  std::string name() const override { return name_; }

  mutable F function_;
  std::size_t cycle_;
  std::size_t block_;
  std::string name_;
};

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
    void read_rows(C& out, std::size_t most) override {
      if (kept_) {
        const std::size_t number = std::min(most, rows_of(kept_->rows) - next_);
        append_rows(out, kept_->rows, next_, number);
        next_ += number;
        return;
      }
      const std::size_t before = rows_of(reading_->rows);
      const std::size_t found = upstream_->read(reading_->rows, most);
      append_rows(out, reading_->rows, before, found);
      next_ += found;
      if (found > 0) return;
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

  mutable std::mutex mutex_;
  mutable std::shared_ptr<const Reading> kept_;
};

}  // namespace lockstep::data
