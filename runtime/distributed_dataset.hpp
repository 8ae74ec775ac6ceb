// SPDX-License-Identifier: Apache-2.0
// Gives each replica of a strategy its part of a data set. By default, piece j of each batch belongs to replica j,
// whatever the processes are, so all layouts of the same replicas compute the same bits.
//   auto dataset = strategy.distribute(data::range(100).batch(32));
//   for (const auto& batch : dataset) strategy.run(step, batch);
#pragma once

#include <cstdint>
#include <deque>
#include <exception>
#include <iterator>
#include <memory>
#include <optional>
#include <ostream>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/data/dataset.hpp"
#include "runtime/input_agreement.hpp"
#include "runtime/input_division.hpp"
#include "runtime/input_loop.hpp"
#include "runtime/input_options.hpp"
#include "runtime/input_steps.hpp"
#include "runtime/strategy.hpp"
#include "runtime/values/structure.hpp"
#include "runtime/values/tensor_spec.hpp"

namespace lockstep {
namespace detail {

// Opens the loops of a distributed data set. It refers to its strategy, which must outlive it.
template <class E>
class InputPlan {
 public:
  using C = data::Columns<E>;
  InputPlan() = default;
  InputPlan(const InputPlan&) = delete;
  InputPlan& operator=(const InputPlan&) = delete;
  virtual ~InputPlan() = default;
  // Returns the steps of a new loop. All processes call it.
  virtual std::unique_ptr<StepSource<C>> open() const = 0;
  virtual LoopDescription description() const = 0;
  // Returns the data set that has the elements of this process.
  virtual const Dataset<E>& dataset() const = 0;
};

// Divides one data set.
template <class E>
class DividedInput final : public InputPlan<E> {
 public:
  using typename InputPlan<E>::C;
  DividedInput(Strategy& strategy, Dataset<E> dataset, const InputOptions& options)
      : strategy_(strategy),
        dataset_(std::move(dataset)),
        division_(strategy,
                  {.text = dataset_.describe(),
                   .batch_size = dataset_.stage()->batch_size(),
                   .files = dataset_.stage()->file_count(),
                   .sharding = dataset_.stage()->sharding()},
                  options),
        prefetch_(prefetch_of(strategy, options)) {
    try {
      part_ = division_.part_of(dataset_.stage());
    } catch (const Error& error) {
      if (error.code() == Code::usage) throw;  // All processes throw it.
      failure_ = std::current_exception();
    }
  }
  std::unique_ptr<StepSource<C>> open() const override {
    const data::Opening opening = share_opening(strategy_, data::opening_of(*dataset_.stage()));
    if (failure_) std::rethrow_exception(failure_);
    if (division_.has_one_sequence()) return std::make_unique<SharedSequence<E>>(part_, opening, division_.pieces());
    return std::make_unique<OwnRows<E>>(part_, opening, division_.size_cycle(), division_.first_in_cycle(),
                                        static_cast<std::size_t>(strategy_.num_local_replicas()));
  }
  const Dataset<E>& dataset() const override { return dataset_; }
  LoopDescription description() const override {
    return {.identity = dataset_.describe() + division_.describe(),
            .has_one_sequence = division_.has_one_sequence(),
            .prefetch = prefetch_};
  }

 private:
  Strategy& strategy_;
  Dataset<E> dataset_;
  InputDivision division_;
  data::SharedStage<C> part_;   // Has this process's part of the input.
  std::exception_ptr failure_;  // Is the exception of a part that this process cannot open.
  int prefetch_;
};

// Reads data sets that a program's function has made in each process.
template <class E>
class OwnInput final : public InputPlan<E> {
 public:
  using typename InputPlan<E>::C;
  // `failure` is the exception of the function; null without one.
  OwnInput(Strategy& strategy, std::vector<Dataset<E>> datasets, std::exception_ptr failure,
           const InputOptions& options)
      : strategy_(strategy),
        datasets_(std::move(datasets)),
        failure_(std::move(failure)),
        is_per_replica_(options.replication == ReplicationMode::per_replica),
        prefetch_(prefetch_of(strategy, options)) {}
  std::unique_ptr<StepSource<C>> open() const override {
    if (failure_) std::rethrow_exception(failure_);
    return std::make_unique<OwnElements<E>>(datasets_, static_cast<std::size_t>(strategy_.num_local_replicas()));
  }
  const Dataset<E>& dataset() const override {
    if (failure_) std::rethrow_exception(failure_);
    return datasets_.front();
  }
  LoopDescription description() const override {
    return {.identity = is_per_replica_ ? "distribute_from() for each replica" : "distribute_from()",
            .has_one_sequence = false,
            .prefetch = prefetch_};
  }

 private:
  Strategy& strategy_;
  std::vector<Dataset<E>> datasets_;
  std::exception_ptr failure_;
  bool is_per_replica_;
  int prefetch_;
};

template <class Leaf>
inline constexpr bool is_tensor_of_each = false;
template <class T>
inline constexpr bool is_tensor_of_each<PerReplica<Tensor<T>>> = true;

// Puts the pieces of a step into a batch, and takes the batch's memory for later pieces.
template <class E, class B>
void exchange_pieces(std::vector<data::Columns<E>>& pieces, B& batch) {
  if constexpr (all_leaves<B>([]<class Leaf>() { return is_tensor_of_each<Leaf>; })) {
    for (std::size_t local = 0; local < pieces.size(); ++local) {
      data::zip_leaves(
          pieces[local], data::leaves(batch),
          [&](auto& column, auto& leaf) { column.exchange(leaf[static_cast<int>(local)]); },
          std::make_index_sequence<std::tuple_size_v<data::Columns<E>>>());
    }
  } else {
    std::deque<E> parts(pieces.size());
    for (std::size_t local = 0; local < pieces.size(); ++local) data::move_element(pieces[local], parts[local]);
    batch = regroup(std::move(parts));
  }
}

template <class T>
inline constexpr bool always_false = false;

}  // namespace detail

// Reads a distributed data set, a piece for each replica of this process in each step. All processes make and use
// their iterators alike.
template <class E>
class DistributedIterator {
 public:
  // Holds a PerReplica for each tensor of a batch.
  using Batch = decltype(detail::regroup(std::deque<E>()));

  // All processes call it.
  DistributedIterator(Strategy& strategy, const detail::InputPlan<E>& plan)
      : loop_(std::make_unique<detail::InputLoop<data::Columns<E>>>(strategy, plan.description(),
                                                                    [&] { return plan.open(); })) {}

  // Returns the pieces of the next step; nothing at the end, which all processes reach at once. A replica's piece may
  // have no rows. If the input of one process fails, its exception ends the loops of all.
  std::optional<Batch> next() {
    detail::InputStep<data::Columns<E>>* const step = loop_->next();
    if (step == nullptr) return std::nullopt;
    std::optional<Batch> batch(std::in_place, detail::regroup(std::deque<E>(step->pieces.size())));
    detail::exchange_pieces<E>(step->pieces, *batch);
    return batch;
  }
  // Replaces the batch. Returns false at the end.
  bool next(Batch& batch) {
    detail::InputStep<data::Columns<E>>* const step = loop_->next();
    if (step != nullptr) detail::exchange_pieces<E>(step->pieces, batch);
    return step != nullptr;
  }
  // Returns the number of rows that all replicas together have in the latest batch; nothing if that takes a message,
  // as it does for data sets of each process's own with known lengths.
  std::optional<std::int64_t> global_rows() const { return loop_->global_rows(); }
  // Returns the number of steps of the whole loop, data::infinite or data::unknown_length; the same in all processes.
  std::int64_t steps() const { return loop_->steps(); }

  // Saves a message in each step of a loop whose length is unknown: the processes' counts travel with the gradients.
  // All processes call it, between two steps. The reducer must outlive the iterator, and carries the counts of one
  // iterator at a time.
  void travel_with(GradientReducer& reducer) { loop_->travel_with(reducer); }

  // Return and take a position. In a sequence that all processes share it fits any number of replicas and processes;
  // otherwise it is of this process alone.
  Bytes position() const { return loop_->position(); }
  void seek(std::span<const std::byte> position) { loop_->seek(position); }

 private:
  std::unique_ptr<detail::InputLoop<data::Columns<E>>> loop_;
};

// Refuses calls of a data set's stages.
struct RefusedStage {
  template <class... A>
  void operator()(A&&... /*arguments*/) const {
    static_assert(detail::always_false<std::tuple<A...>>,
                  "lockstep: a distributed data set has no transformations; call them before distribute()");
  }
};

// Is made by Strategy::distribute() and distribute_from(). It refers to the strategy, which must outlive it. Copies are
// cheap.
template <class E>
class DistributedDataset {
 public:
  using Batch = typename DistributedIterator<E>::Batch;

  DistributedDataset(Strategy& strategy, std::shared_ptr<const detail::InputPlan<E>> plan)
      : strategy_(&strategy), plan_(std::move(plan)) {}

  // Returns the strategy whose replicas get the pieces.
  Strategy& strategy() const { return *strategy_; }
  // Returns an iterator at the first step. All processes call it.
  DistributedIterator<E> open() const { return DistributedIterator<E>(*strategy_, *plan_); }
  // Returns the number of elements in the data set of this process, data::infinite or data::unknown_length.
  std::int64_t length() const { return plan_->dataset().length(); }
  std::string describe() const { return plan_->description().identity; }
  // Returns the type and shape of each tensor of a replica's piece, with an unknown number of rows. It reads the first
  // element of the data set, so functions are called for it. Throws Error usage if there is none.
  std::vector<TensorSpec> spec() const {
    const std::optional<E> first = plan_->dataset().peek();
    if (!first) throw Error(Code::usage, text("spec() of ", describe(), ", which has no elements"));
    std::vector<TensorSpec> all;
    std::apply([&](const auto&... leaf) { (all.push_back(spec_of(leaf)), ...); }, data::leaves(*first));
    return all;
  }

  // Reads the data set in a range-based for. All processes do so. The reference holds until the next step.
  class LoopIterator {
   public:
    LoopIterator(DistributedIterator<E> iterator, int replicas)
        : iterator_(std::move(iterator)), batch_(detail::regroup(std::deque<E>(static_cast<std::size_t>(replicas)))) {
      ++*this;
    }
    const Batch& operator*() const { return batch_; }
    LoopIterator& operator++() {
      has_batch_ = iterator_.next(batch_);
      return *this;
    }
    bool operator==(std::default_sentinel_t /*end*/) const { return !has_batch_; }

   private:
    DistributedIterator<E> iterator_;
    Batch batch_;
    bool has_batch_ = false;
  };
  LoopIterator begin() const { return LoopIterator(open(), strategy_->num_local_replicas()); }
  std::default_sentinel_t end() const { return {}; }

  // Are refused by the compiler.
  static constexpr RefusedStage map{}, filter{}, flat_map{}, interleave{}, batch{}, padded_batch{}, unbatch{},
      shuffle{}, repeat{}, take{}, skip{}, shard{}, concatenate{}, enumerate{}, cache{}, prefetch{};

 private:
  template <class T>
  static TensorSpec spec_of(const Tensor<T>& tensor) {
    std::vector<std::int64_t> lengths = tensor.shape().lengths();
    if (!lengths.empty()) lengths.front() = TensorSpec::unknown;
    return {std::move(lengths), data_type_of<T>};
  }

  Strategy* strategy_;
  std::shared_ptr<const detail::InputPlan<E>> plan_;
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
  return {*this, std::make_shared<detail::DividedInput<E>>(*this, dataset, options)};
}

template <class F>
auto Strategy::distribute_from(F&& function) {
  return distribute_from(function, InputOptions());
}

template <class F>
auto Strategy::distribute_from(F&& function, const InputOptions& options) {
  using Result = std::invoke_result_t<F&, const InputContext&>;
  using E = typename Result::Element;
  static_assert(detail::all_leaves<E>([]<class Leaf>() { return data::is_tensor<Leaf>; }),
                "lockstep: the function of distribute_from() returns batches; call batch(size for one replica)");
  const InputContext of_process = detail::input_context_of(*this, options);
  const bool is_per_replica = options.replication == ReplicationMode::per_replica;
  std::vector<Dataset<E>> datasets;
  std::exception_ptr failure;
  try {
    for (int i = 0; i < (is_per_replica ? num_local_replicas() : 1); ++i) {
      InputContext context = of_process;
      if (is_per_replica) {
        context.num_input_pipelines = num_replicas_in_sync();
        context.input_pipeline_id = replica(i).replica_id_in_sync_group();
      }
      datasets.push_back(function(std::as_const(context)));
    }
  } catch (...) {
    if (of_process.num_input_pipelines == 1) throw;
    failure = std::current_exception();  // The first loop throws it in all processes.
  }
  return DistributedDataset<E>(*this,
                               std::make_shared<detail::OwnInput<E>>(*this, std::move(datasets), failure, options));
}

}  // namespace lockstep
