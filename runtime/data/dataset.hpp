// SPDX-License-Identifier: Apache-2.0
// Describes data as a value: a source and the stages after it. Nothing is read before a loop asks for an element.
//   const auto batches = data::range(10).map([](std::int64_t x) { return 2 * x; }).batch(4);
//   for (const Tensor<std::int64_t>& batch : batches) ...
// Elements are numbers, tensors, tuples of them, or structs with Fields. A position of a loop can be saved and sought.
#pragma once

#include <exception>
#include <iterator>
#include <limits>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>

#include "runtime/data/batch.hpp"
#include "runtime/data/cache.hpp"
#include "runtime/data/file_cache.hpp"
#include "runtime/data/parallel_map.hpp"
#include "runtime/data/prefetch.hpp"
#include "runtime/data/sequences.hpp"
#include "runtime/data/shuffle.hpp"
#include "runtime/data/sources.hpp"
#include "runtime/data/stages.hpp"

namespace lockstep {

// Reads the elements of a data set one after the other. One thread at a time may use it.
template <class E>
class DatasetIterator {
 public:
  explicit DatasetIterator(data::SharedStage<data::Columns<E>> stage)
      : DatasetIterator(stage, data::opening_of(*stage)) {}
  // Reads in the order of an opening of the same pipeline.
  DatasetIterator(data::SharedStage<data::Columns<E>> stage, const data::Opening& opening)
      : stage_(std::move(stage)), opening_(opening), cursor_(stage_->open(opening)) {}
  DatasetIterator(DatasetIterator&&) noexcept = default;
  DatasetIterator& operator=(DatasetIterator&& other) noexcept {
    cursor_.reset();  // It refers to the stage.
    stage_ = std::move(other.stage_);
    opening_ = std::move(other.opening_);
    cursor_ = std::move(other.cursor_);
    rows_ = std::move(other.rows_);
    returned_ = other.returned_;
    read_ahead_ = other.read_ahead_;
    chunk_position_ = std::move(other.chunk_position_);
    failure_ = std::move(other.failure_);
    return *this;
  }
  ~DatasetIterator() = default;

  // Replaces the element by the next one. Returns false at the end. Memory of the element's tensors is used for later
  // ones, so references into them end. After an exception, each call throws it again until seek().
  bool next(E& element) {
    if (returned_ == data::rows_of(rows_) && !fill()) return false;
    if constexpr (has_numbers_only)
      data::read_element(rows_, returned_++, element);
    else
      data::move_element(rows_, element);
    return true;
  }
  // Returns the next element; nothing at the end.
  std::optional<E> next() {
    std::optional<E> element(std::in_place);
    if (!next(*element)) element.reset();
    return element;
  }

  // Are for libraries that read batches of tensors; not to be mixed with next() on numbers.
  // Reads the next element, which is a batch, as some of its pieces. Returns the number of rows in the whole batch;
  // nothing at the end.
  std::optional<std::int64_t> next_pieces(const data::BatchPieces& pieces, std::span<data::Columns<E>> out) {
    return keep_failure([&] { return cursor_->read_pieces(pieces, out); });
  }
  // Appends `number` elements, or fewer at the end. Returns their number.
  std::size_t read_all(data::Columns<E>& out, std::size_t number) {
    return keep_failure([&] { return cursor_->read_all(out, number); });
  }

  // Returns the position before the next element, for an iterator of the same pipeline in any process of the program.
  // After an exception, this is the one before the failing element in a loop over numbers, and Error usage in others.
  Bytes position() const {
    if (failure_ && !chunk_position_)
      throw Error(Code::usage, text("the position of a loop that has failed, over ", stage_->describe()),
                  "save the position before next()");
    const Bytes cursor = chunk_position_ ? *chunk_position_ : data::position_of(*cursor_);
    Writer writer;
    writer.put(fingerprint());
    data::save(opening_, writer);
    writer.put(static_cast<std::uint64_t>(chunk_position_ ? returned_ : 0)).put(std::span<const std::byte>(cursor));
    const Bytes body = writer.take();
    Writer sealed;
    sealed.put(hash(body)).put(std::span<const std::byte>(body));
    return sealed.take();
  }
  // Goes to a position. Throws Error usage for one of another pipeline, and Error bad_message for other bytes; the
  // iterator then stays at its place.
  void seek(std::span<const std::byte> position) {
    Reader sealed(position);
    const auto checksum = sealed.get<std::uint64_t>();
    const Bytes body = sealed.get_bytes();
    sealed.expect_done();
    data::check_position(hash(body) == checksum);
    Reader reader(body);
    if (reader.get<std::uint64_t>() != fingerprint())
      throw Error(Code::usage, text("a position of another pipeline than ", stage_->describe()),
                  "use it with the pipeline that it is from, with the same parameters");
    DatasetIterator there(stage_, data::load(opening_, reader));
    const auto used = reader.get<std::uint64_t>();
    data::seek_to(*there.cursor_, reader.get_bytes());
    reader.expect_done();
    data::check_position(used <= max_read_ahead);
    E element{};
    for (std::uint64_t i = 0; i < used; ++i) data::check_position(there.next(element));
    *this = std::move(there);
  }

 private:
  static constexpr bool has_numbers_only = detail::all_leaves<E>([]<class Leaf>() { return detail::Number<Leaf>; });
  static constexpr std::size_t max_read_ahead = 64;

  std::uint64_t fingerprint() const { return hash(to_bytes(stage_->describe())); }
  // Reads rows; false at the end. Numbers are read more and more at once.
  bool fill() {
    if (failure_) std::rethrow_exception(failure_);
    if (!cursor_->has_failed()) begin_rows();
    return keep_failure([&] { return cursor_->read(rows_, read_ahead_) > 0; });
  }
  // Forgets the rows that have been returned, and keeps the position behind them.
  void begin_rows() {
    data::clear(rows_);
    returned_ = 0;
    chunk_position_.reset();
    if (!has_numbers_only || stage_->needs_single_reads()) return;
    chunk_position_ = data::position_of(*cursor_);
    read_ahead_ = std::min(max_read_ahead, 2 * read_ahead_);
  }
  // Calls a function that reads. Its exception comes again with each later call.
  template <class F>
  auto keep_failure(F&& read) {
    if (failure_) std::rethrow_exception(failure_);
    try {
      return read();
    } catch (...) {
      failure_ = std::current_exception();
      throw;
    }
  }

  data::SharedStage<data::Columns<E>> stage_;
  data::Opening opening_;
  std::unique_ptr<data::Cursor<data::Columns<E>>> cursor_;
  data::Columns<E> rows_;       // Holds rows that have been read at once.
  std::size_t returned_ = 0;    // Counts those of them that next() has returned.
  std::size_t read_ahead_ = 1;  // Counts the rows that the next read asks for.
  // Is the cursor's position before the rows. It is empty if each row is read by itself.
  std::optional<Bytes> chunk_position_;
  std::exception_ptr failure_;
};

// Refers to its stages, so copies are cheap. It never changes; each function returns another data set.
template <class E>
class Dataset {
 public:
  using Element = E;
  using Columns = data::Columns<E>;

  explicit Dataset(data::SharedStage<Columns> stage) : stage_(std::move(stage)) {}

  // Returns the results of function(element). Parts of a tuple may be parameters of their own.
  template <class F>
  auto map(F function) const {
    using R = std::remove_cvref_t<decltype(data::call_with(function, std::declval<const E&>()))>;
    return Dataset<R>(std::make_shared<data::MapStage<E, R, F>>(stage_, std::move(function)));
  }
  // Calls the function in several threads at once, and keeps the order. It must be callable while it is const.
  template <class F>
  auto map(F function, data::MapOptions options) const {
    static_assert(data::takes_element<const F, E> || data::takes_parts<const F, E>,
                  "lockstep: several threads call the function of map(function, {.calls = ...}) at once, so it must be "
                  "callable while it is const: no mutable lambda");
    using R = std::remove_cvref_t<decltype(data::call_with(std::as_const(function), std::declval<const E&>()))>;
    require(options.calls > 0 || options.calls == data::automatic, text("map with ", options.calls, " calls at once"),
            "give 1 or more, or data::automatic");
    if (options.calls == 1) return map(std::move(function));
    return Dataset<R>(std::make_shared<data::ParallelMapStage<E, R, F>>(stage_, std::move(function), options));
  }
  // Returns the elements for which function(element) is true.
  template <class F>
  Dataset filter(F function) const {
    return Dataset(std::make_shared<data::FilterStage<E, F>>(stage_, std::move(function)));
  }
  // Returns the elements of the data sets that function(element) returns, one data set after the other.
  template <class F>
  auto flat_map(F function) const {
    return interleaved(std::move(function), 1, 1, "flat_map");
  }
  // Returns them in turns: `block` elements of each of `cycle` data sets.
  template <class F>
  auto interleave(F function, std::int64_t cycle, std::int64_t block = 1) const {
    require(cycle > 0 && block > 0, text("interleave(", cycle, ", ", block, ')'), "give numbers above 0");
    return interleaved(std::move(function), cycle, block, text("interleave(", cycle, ", ", block, ')'));
  }

  // Returns batches of `size` elements of equal shapes: a tensor for each number or tensor, with one more axis.
  auto batch(std::int64_t size, data::BatchOptions options = {}) const { return batched(size, options, "batch"); }
  // Returns batches whose elements get zeros, or other values, up to the longest along each axis, or to given lengths.
  auto padded_batch(std::int64_t size, data::PaddingOptions options = {}) const {
    return batched(size, std::move(options), "padded_batch");
  }
  // Returns the rows of each tensor.
  Dataset unbatch() const {
    static_assert(detail::all_leaves<E>([]<class Leaf>() { return data::is_tensor<Leaf>; }),
                  "lockstep: unbatch() takes the rows of tensors; these elements have numbers or texts in them");
    return Dataset(std::make_shared<data::UnbatchStage<Columns>>(stage_));
  }

  // Returns the elements in an order drawn at random from a buffer of `size` elements. Of data::unknown_length, which
  // length() may return, the buffer has space for all.
  Dataset shuffle(std::int64_t size, data::ShuffleOptions options = {}) const {
    if (size == data::unknown_length) size = std::numeric_limits<std::int64_t>::max();
    require(size > 0, text("shuffle(", size, ')'), "give a buffer of 1 or more, or data::unknown_length for all");
    return Dataset(std::make_shared<data::ShuffleStage<Columns>>(stage_, size, options));
  }
  // Returns the elements `count` times, or for ever.
  Dataset repeat(std::int64_t count = data::infinite) const {
    require(count >= data::infinite, text("repeat(", count, ')'), "give a number, or -1 for ever");
    return Dataset(std::make_shared<data::RepeatStage<Columns>>(stage_, count));
  }
  // Returns the first elements; -1 means all.
  Dataset take(std::int64_t number) const {
    require(number >= data::infinite, text("take(", number, ')'), "give a number, or -1 for all");
    return part(0, number, text("take(", number, ')'));
  }
  // Returns the elements behind the first ones; -1 skips all.
  Dataset skip(std::int64_t number) const {
    require(number >= data::infinite, text("skip(", number, ')'), "give a number, or -1 for all");
    return part(std::max<std::int64_t>(0, number), number < 0 ? 0 : data::infinite, text("skip(", number, ')'));
  }
  // Returns each `shards`-th element, beginning with number `index`.
  Dataset shard(std::int64_t shards, std::int64_t index) const {
    require(index >= 0 && index < shards, text("shard(", shards, ", ", index, ')'),
            "give an index from 0 to the number of shards less 1");
    return Dataset(std::make_shared<data::ShardStage<Columns>>(stage_, shards, index));
  }
  // Returns the elements that sharding by a hint leaves to a process; all of them without distribute().
  Dataset shard(data::ShardHint /*hint*/) const {
    return Dataset(std::make_shared<data::ShardHintStage<Columns>>(stage_));
  }
  // Returns the elements, and then those of another data set.
  Dataset concatenate(const Dataset& other) const {
    return Dataset(std::make_shared<data::ConcatenateStage<Columns>>(stage_, other.stage_));
  }
  // Returns pairs of a number, counted from `start`, and an element.
  Dataset<std::tuple<std::int64_t, E>> enumerate(std::int64_t start = 0) const;

  // Returns the elements, which the first complete loop keeps in memory for all others.
  Dataset cache() const { return Dataset(std::make_shared<data::MemoryCacheStage<Columns>>(stage_)); }
  // Returns the elements, which the first complete loop writes into a file for all others, also of other processes.
  Dataset cache(std::string path) const {
    require(!path.empty(), "cache(\"\")", "give the path of a file, or call cache()");
    return Dataset(std::make_shared<data::FileCacheStage<Columns>>(stage_, std::move(path), data::types_of<E>()));
  }
  // Returns the elements, of which a thread reads up to `size` ahead of the loop.
  Dataset prefetch(std::int64_t size) const {
    require(size > 0, text("prefetch(", size, ')'), "give 1 or more");
    return Dataset(std::make_shared<data::PrefetchStage<Columns>>(stage_, static_cast<std::size_t>(size)));
  }

  // Returns the number of elements, data::infinite or data::unknown_length.
  std::int64_t length() const { return stage_->length(); }
  // Returns a text such as "range(0, 10, 1) | map | batch(4)".
  std::string describe() const { return stage_->describe(); }
  const data::SharedStage<Columns>& stage() const { return stage_; }

  // Returns the data set with options for Strategy::distribute().
  Dataset with_options(const data::DatasetOptions& options) const {
    return Dataset(std::make_shared<data::OptionsStage<Columns>>(stage_, options));
  }
  // Returns the first element; nothing if there is none. It begins no loop: later shuffles stay as they are, and
  // caches keep nothing of it.
  std::optional<E> peek() const { return DatasetIterator<E>(stage_, data::peek_opening_of(*stage_)).next(); }

  // Returns an iterator at the first element. It keeps the stages, so the data set may be destroyed first.
  DatasetIterator<E> open() const { return DatasetIterator<E>(stage_); }

  // Reads the data set in a range-based for. The reference holds until the next element is read.
  class LoopIterator {
   public:
    using value_type = E;
    using difference_type = std::ptrdiff_t;
    explicit LoopIterator(DatasetIterator<E> iterator) : iterator_(std::move(iterator)) { ++*this; }
    const E& operator*() const { return element_; }
    LoopIterator& operator++() {
      has_element_ = iterator_.next(element_);
      return *this;
    }
    bool operator==(std::default_sentinel_t /*end*/) const { return !has_element_; }

   private:
    DatasetIterator<E> iterator_;
    E element_{};
    bool has_element_ = false;
  };
  LoopIterator begin() const { return LoopIterator(open()); }
  std::default_sentinel_t end() const { return {}; }

 private:
  static void require(bool holds, const std::string& call, const char* remedy) {
    if (!holds) throw Error(Code::usage, text(call, " of a data set"), remedy);
  }
  Dataset part(std::int64_t first, std::int64_t number, std::string name) const {
    return Dataset(std::make_shared<data::PartStage<Columns>>(stage_, first, number, std::move(name)));
  }
  template <class Options>
  auto batched(std::int64_t size, Options options, std::string_view name) const {
    if constexpr (data::BatchOf<E>::exists) {
      require(size > 0, text(name, '(', size, ')'), "give 1 or more");
      const auto rows = static_cast<std::size_t>(size);
      return Dataset<data::Batch<E>>(std::make_shared<data::BatchStage<Columns>>(stage_, rows, std::move(options)));
    } else {
      constexpr bool has_text = !detail::all_leaves<E>([]<class Leaf>() { return !data::is_text<Leaf>; });
      static_assert(!has_text, "lockstep: a batch has tensors of numbers; make numbers of texts by map() before it");
      static_assert(has_text || data::BatchOf<E>::exists,
                    "lockstep: a batch has tensors for numbers; make the struct a template of its fields' types, so "
                    "that these may change");
      return *this;
    }
  }
  template <class F>
  auto interleaved(F function, std::int64_t cycle, std::int64_t block, std::string name) const {
    using Inner = std::remove_cvref_t<decltype(data::call_with(function, std::declval<const E&>()))>;
    static_assert(
        requires { typename Inner::Columns; },
        "lockstep: the function of flat_map() and interleave() must return a Dataset");
    return Inner(std::make_shared<data::InterleaveStage<E, typename Inner::Columns, F>>(
        stage_, std::move(function), static_cast<std::size_t>(cycle), static_cast<std::size_t>(block),
        std::move(name)));
  }

  data::SharedStage<Columns> stage_;
};

template <class E>
std::ostream& operator<<(std::ostream& out, const Dataset<E>& dataset) {
  return out << "Dataset(" << dataset.describe() << ')';
}

namespace data {

// Return the numbers below `end`, or from `first` to `end` in steps.
inline Dataset<std::int64_t> range(std::int64_t first, std::int64_t end, std::int64_t step = 1) {
  return Dataset<std::int64_t>(std::make_shared<RangeStage>(first, end, step));
}
inline Dataset<std::int64_t> range(std::int64_t end) { return range(0, end); }
// Returns the only element.
template <class E>
Dataset<E> from_tensors(E element) {
  return Dataset<E>(std::make_shared<ElementStage<E>>(std::move(element)));
}
// Returns the rows of a tensor, of a vector of numbers, or of each part of a tuple. A SharedTensor is kept, without a
// copy. A TensorSpan or a std::span is not copied either, but its memory must outlive the data set.
template <class S>
auto from_tensor_slices(S source) {
  using Element = typename SlicesOf<S>::Element;
  auto slices = SlicesOf<S>::of(std::move(source));
  return [&]<class... T>(std::tuple<Slices<T>...>& all) {
    return Dataset<Element>(std::make_shared<SlicesStage<T...>>(std::move(all)));
  }(slices);
}
template <class T>
Dataset<T> from_tensor_slices(std::initializer_list<T> values) {
  return from_tensor_slices(std::vector<T>(values));
}
// Returns the values of a function that returns an optional, until that is empty. Each loop calls a copy of it.
template <class F>
auto from_function(F function) {
  using E = typename std::remove_cvref_t<decltype(function())>::value_type;
  return Dataset<E>(std::make_shared<FunctionStage<E, F>>(std::move(function)));
}
// Returns tuples of the elements of several data sets. It ends with the shortest one.
template <class... E>
Dataset<std::tuple<E...>> zip(const Dataset<E>&... all) {
  return Dataset<std::tuple<E...>>(std::make_shared<ZipStage<Columns<E>...>>(all.stage()...));
}

}  // namespace data

template <class E>
Dataset<std::tuple<std::int64_t, E>> Dataset<E>::enumerate(std::int64_t start) const {
  constexpr std::int64_t largest = std::numeric_limits<std::int64_t>::max();
  return data::zip(data::range(start, start < 0 ? largest + start : largest), *this);
}

}  // namespace lockstep
