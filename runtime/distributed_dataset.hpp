// SPDX-License-Identifier: Apache-2.0
// Divides the batches of a data set among the replicas of a strategy. Piece j of each batch belongs to replica j,
// whatever the processes are, so all layouts of the same replicas compute the same bits. Every process reads the whole
// sequence and keeps the pieces of its replicas, so all know the end without a message.
//   auto dataset = strategy.distribute(data::range(100).batch(32));
//   for (const auto& batch : dataset) strategy.run(step, batch);
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <iterator>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/dataset.hpp"
#include "runtime/strategy.hpp"
#include "runtime/values/structure.hpp"

namespace lockstep {

// Names the rules for the pieces of a batch. `fixed_size` gives each replica the batch size divided by the replicas,
// rounded up, so that the last ones may get fewer rows or none: 4 rows for 3 replicas are 2, 2 and 0. `even` gives
// numbers that differ by one at most: 2, 1 and 1.
enum class BatchDivision : std::uint8_t { fixed_size, even };

struct InputOptions {
  BatchDivision division = BatchDivision::fixed_size;
};

namespace detail {

// Holds the rows of a replica in a batch.
struct RowRange {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
// Returns the rows of a replica. A last batch has fewer rows than `size`; `fixed_size` divides it as one of `size`.
inline RowRange rows_of_replica(std::int64_t rows, std::int64_t size, int replica, int replicas,
                                BatchDivision division) {
  if (division == BatchDivision::even) {
    const std::int64_t each = rows / replicas;
    const std::int64_t rest = rows % replicas;
    return {replica * each + std::min<std::int64_t>(replica, rest), each + (replica < rest ? 1 : 0)};
  }
  const std::int64_t each = (std::max(rows, size) + replicas - 1) / replicas;
  const std::int64_t first = std::min(rows, replica * each);
  return {first, std::min(each, rows - first)};
}

// Lets the processes agree on the opening of a loop. Throws Error mismatch on all if they loop over different data
// sets.
data::Opening agree_on_opening(Strategy& strategy, const data::Opening& mine, const std::string& pipeline);

// Returns some rows of each tensor in a batch.
template <class E>
E rows_of_batch(const E& batch, const RowRange& rows) {
  E piece = E();
  const auto from = data::leaves(batch);
  const auto to = data::leaves(piece);
  [&]<std::size_t... i>(std::index_sequence<i...> /*leaves*/) {
    ((std::get<i>(to) = std::get<i>(from).rows(rows.first, rows.count).copy()), ...);
  }
  (std::make_index_sequence<std::tuple_size_v<decltype(from)>>());
  return piece;
}

// Returns the number of rows of all tensors in a batch. Throws Error usage if they differ.
template <class E>
std::int64_t rows_in_batch(const E& batch, const std::string& pipeline) {
  std::optional<std::int64_t> rows;
  const auto check = [&](const auto& leaf) {
    if (leaf.shape().rank() > 0 && leaf.shape()[0] == rows.value_or(leaf.shape()[0]))
      rows = leaf.shape()[0];
    else
      throw Error(Code::usage,
                  text("an element of ", pipeline, " has a tensor of the shape ", leaf.shape().to_string(),
                       rows ? text(" beside one of ", *rows, " rows") : ""),
                  "call batch(size of the global batch) before distribute()");
  };
  std::apply([&](const auto&... each) { (check(each), ...); }, data::leaves(batch));
  return *rows;
}

template <class T>
inline constexpr bool always_false = false;

}  // namespace detail

// Reads the batches of a distributed data set, a piece for each replica of this process. All processes make and use
// their iterators alike.
template <class E>
class DistributedIterator {
 public:
  // Holds a PerReplica for each tensor of a batch.
  using Batch = decltype(detail::regroup(std::deque<E>()));

  DistributedIterator(Strategy& strategy, const Dataset<E>& dataset, const InputOptions& options)
      : strategy_(&strategy),
        options_(options),
        pipeline_(dataset.describe() + (options.division == BatchDivision::even ? ", divided evenly" : "")),
        size_(dataset.stage()->batch_size()),
        batches_(dataset.stage(), detail::agree_on_opening(strategy, data::opening_of(*dataset.stage()), pipeline_)) {}

  // Returns the pieces of the next batch; nothing at the end, which all processes reach at once. A replica's piece may
  // have no rows.
  std::optional<Batch> next() {
    if (!batches_.next(batch_)) return std::nullopt;
    const std::int64_t rows = detail::rows_in_batch(batch_, pipeline_);
    std::deque<E> pieces;
    for (int local = 0; local < strategy_->num_local_replicas(); ++local) {
      const int replica = strategy_->replica(local).replica_id_in_sync_group();
      pieces.push_back(detail::rows_of_batch(
          batch_, detail::rows_of_replica(rows, size_, replica, strategy_->num_replicas_in_sync(), options_.division)));
    }
    return detail::regroup(std::move(pieces));
  }
  // Return and take the position in the sequence of batches. It fits any number of replicas and processes.
  Bytes position() const { return batches_.position(); }
  void seek(std::span<const std::byte> position) { batches_.seek(position); }

 private:
  Strategy* strategy_;
  InputOptions options_;
  std::string pipeline_;
  std::int64_t size_;  // Is the size of whole batches, or data::unknown_length.
  DatasetIterator<E> batches_;
  E batch_{};
};

// Is made by Strategy::distribute(). It refers to the strategy, which must outlive it.
template <class E>
class DistributedDataset {
 public:
  using Batch = typename DistributedIterator<E>::Batch;

  DistributedDataset(Strategy& strategy, Dataset<E> dataset, InputOptions options)
      : strategy_(&strategy), dataset_(std::move(dataset)), options_(options) {}

  // Returns an iterator at the first batch. All processes call it.
  DistributedIterator<E> open() const { return DistributedIterator<E>(*strategy_, dataset_, options_); }
  // Returns the number of batches, data::infinite or data::unknown_length.
  std::int64_t length() const { return dataset_.length(); }
  std::string describe() const { return dataset_.describe(); }

  // Reads the data set in a range-based for. All processes do so.
  class LoopIterator {
   public:
    explicit LoopIterator(DistributedIterator<E> iterator) : iterator_(std::move(iterator)), batch_(iterator_.next()) {}
    const Batch& operator*() const { return *batch_; }
    LoopIterator& operator++() {
      batch_ = iterator_.next();
      return *this;
    }
    bool operator==(std::default_sentinel_t /*end*/) const { return !batch_; }

   private:
    DistributedIterator<E> iterator_;
    std::optional<Batch> batch_;
  };
  LoopIterator begin() const { return LoopIterator(open()); }
  std::default_sentinel_t end() const { return {}; }

  // Are refused by the compiler.
  template <class... A>
  void map(A&&... /*arguments*/) const {
    static_assert(detail::always_false<std::tuple<A...>>,
                  "lockstep: a distributed data set has no transformations; call map() before distribute()");
  }
  template <class... A>
  void batch(A&&... /*arguments*/) const {
    static_assert(detail::always_false<std::tuple<A...>>,
                  "lockstep: a distributed data set has no transformations; call batch() before distribute()");
  }

 private:
  Strategy* strategy_;
  Dataset<E> dataset_;
  InputOptions options_;
};

template <class E>
std::ostream& operator<<(std::ostream& out, const DistributedDataset<E>& dataset) {
  return out << "DistributedDataset(" << dataset.describe() << ')';
}

template <class E>
DistributedDataset<E> Strategy::distribute(const Dataset<E>& dataset) {
  return distribute(dataset, InputOptions());
}

template <class E>
DistributedDataset<E> Strategy::distribute(const Dataset<E>& dataset, const InputOptions& options) {
  static_assert(detail::all_leaves<E>([]<class Leaf>() { return data::is_tensor<Leaf>; }),
                "lockstep: distribute() divides batches; call batch(size of the global batch) before it");
  return DistributedDataset<E>(*this, dataset, options);
}

}  // namespace lockstep
