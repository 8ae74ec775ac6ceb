// SPDX-License-Identifier: Apache-2.0
// Defines the stages that read several cursors: repeat, concatenate, zip, interleave and flat_map. Pure.
#pragma once

#include <limits>
#include <memory>
#include <utility>
#include <vector>

#include "runtime/data/stages.hpp"

namespace lockstep::data {

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
    constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
    return each < 0 ? each : each > largest / count_ ? infinite : each * count_;
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
    bool has_failed() const override { return Cursor<C>::has_failed() || lap_cursor_->has_failed(); }

   private:
    void begin(std::int64_t lap) {
      lap_ = lap;
      has_rows_ = false;
      Opening opening = opening_;
      opening.epoch = opening.epoch * 0x9E3779B97F4A7C15U + static_cast<std::uint64_t>(lap);
      lap_cursor_ = stage_.upstream().open(opening);
    }
    void read_rows(C& out, std::size_t max_rows) override {
      if (stage_.upstream().length() == 0) return;
      while (lap_ != stage_.count_) {
        if (lap_cursor_->read(out, max_rows) > 0) {
          has_rows_ = true;
          return;
        }
        if (!has_rows_ && stage_.count_ == infinite) return;
        begin(lap_ + 1);
      }
    }
    std::size_t skip_rows(std::size_t rows) override {
      std::size_t left = rows;
      while (left > 0 && lap_ != stage_.count_ && stage_.upstream().length() != 0) {
        const std::size_t found = lap_cursor_->skip(left);
        has_rows_ = has_rows_ || found > 0;
        left -= found;
        if (left == 0 || (!has_rows_ && stage_.count_ == infinite)) break;
        begin(lap_ + 1);
      }
      return rows - left;
    }

    const RepeatStage& stage_;
    Opening opening_;
    std::unique_ptr<Cursor<C>> lap_cursor_;
    std::int64_t lap_ = 0;
    bool has_rows_ = false;  // True if this lap has had a row.
  };

  std::string name() const override { return text("repeat(", count_, ')'); }
  SharedStage<C> on(SharedStage<C> upstream) const override {
    return std::make_shared<RepeatStage>(std::move(upstream), count_);
  }

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
  std::int64_t file_count() const override { return std::min(parts_[0]->file_count(), parts_[1]->file_count()); }
  // Divides the files of both parts or of none, so that no rows come twice.
  SharedStage<C> with_input(const InputPart& part) const override {
    SharedStage<C> first = parts_[0]->with_input(part);
    SharedStage<C> second = parts_[1]->with_input(part);
    if ((!first && !second) || (part.is_by_files && (!first || !second))) return nullptr;
    return std::make_shared<ConcatenateStage>(first ? first : parts_[0], second ? second : parts_[1]);
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
    bool has_failed() const override { return Cursor<C>::has_failed() || cursor_->has_failed(); }

   private:
    void begin(std::size_t part) {
      part_ = part;
      cursor_ = stage_.parts_[part]->open(opening_);
    }
    void read_rows(C& out, std::size_t max_rows) override {
      if (cursor_->read(out, max_rows) > 0 || part_ == 1) return;
      begin(1);
      cursor_->read(out, max_rows);
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
    if (is_indexed()) return std::make_unique<IndexedCursor<C>>(*this);
    return std::apply([&](const auto&... each) { return std::make_unique<ZipCursor>(each->open(opening)...); },
                      stages_);
  }
  bool is_indexed() const override {
    return std::apply([](const auto&... each) { return (each->is_indexed() && ...); }, stages_);
  }
  // Leaves the rows before an exception in `out`.
  void gather(std::span<const std::int64_t> numbers, C& out) const override {
    std::tuple<Cs...> parts;
    const std::size_t before = rows_of(out);
    std::size_t number = numbers.size();
    std::exception_ptr failure;
    exchange(out, parts);
    for_each([&]<std::size_t i>(std::integral_constant<std::size_t, i> /*which*/) {
      auto& part = std::get<i>(parts);
      try {
        std::get<i>(stages_)->gather(numbers.first(number), part);
      } catch (...) {
        failure = std::current_exception();
        number = complete_rows_of(part) - before;
      }
    });
    exchange(out, parts);
    if (!failure) return;
    truncate(out, before + number);
    std::rethrow_exception(failure);
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
  std::int64_t file_count() const override {
    return std::apply([](const auto&... each) { return std::min({each->file_count()...}); }, stages_);
  }
  // Divides the files of all stages or of none, so that rows stay beside one another.
  SharedStage<C> with_input(const InputPart& part) const override {
    return with_input(part, std::index_sequence_for<Cs...>());
  }

 private:
  template <class F>
  static void for_each(F&& function) {
    [&]<std::size_t... i>(std::index_sequence<i...> /*stages*/) {
      (function(std::integral_constant<std::size_t, i>()), ...);
    }
    (std::index_sequence_for<Cs...>());
  }
  // Exchanges the columns with those of the parts, without a copy of rows.
  static void exchange(C& all, std::tuple<Cs...>& parts) {
    auto columns = std::apply(
        [](auto&... each) {
          return std::tuple_cat(std::apply([](auto&... column) { return std::tie(column...); }, each)...);
        },
        parts);
    zip_leaves(
        all, columns, [](auto& column, auto& other) { std::swap(column, other); },
        std::make_index_sequence<std::tuple_size_v<C>>());
  }

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
    bool has_failed() const override {
      return Cursor<C>::has_failed() ||
             std::apply([](const auto&... each) { return (each->has_failed() || ...); }, cursors_);
    }

   private:
    void read_rows(C& out, std::size_t max_rows) override {
      if (has_ended_) return;
      std::tuple<Cs...> rows;
      std::size_t number = max_rows;
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

  template <std::size_t... i>
  SharedStage<C> with_input(const InputPart& part, std::index_sequence<i...> /*stages*/) const {
    const std::tuple<SharedStage<Cs>...> changed{std::get<i>(stages_)->with_input(part)...};
    const bool has_all = (std::get<i>(changed) && ...);
    if (!has_all && (part.is_by_files || !(std::get<i>(changed) || ...))) return nullptr;
    return std::make_shared<ZipStage>((std::get<i>(changed) ? std::get<i>(changed) : std::get<i>(stages_))...);
  }

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
    void read_rows(C& out, std::size_t max_rows) override {
      for (bool is_open = true; is_open;) {
        Slot& slot = slots_[slot_];
        if (slot.cursor) {
          const std::size_t found = slot.cursor->read(out, std::min(max_rows, stage_.block_ - in_block_));
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
      Opening inner;
      inner.is_peek = opening_.is_peek;
      inner.seed = random_bits({opening_.seed, opening_.epoch}, slot.number);
      slot.cursor = slot.stage->open(inner);
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
  SharedStage<C> on(SharedStage<In> upstream) const override {
    return std::make_shared<InterleaveStage>(std::move(upstream), copy_of(function_), cycle_, block_, name_);
  }

  mutable F function_;
  std::size_t cycle_;
  std::size_t block_;
  std::string name_;
};

}  // namespace lockstep::data
