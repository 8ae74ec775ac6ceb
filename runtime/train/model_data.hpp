// SPDX-License-Identifier: Apache-2.0
// Holds the data of fit(), evaluate() and predict(): arrays, a data set, or one that a strategy has divided. It names
// no element type, so that the loops are compiled once.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/any_tensor.hpp"
#include "runtime/distributed_dataset.hpp"
#include "runtime/strategy.hpp"

namespace lockstep::train {

// Holds a replica's part of a batch: features, and perhaps labels, and perhaps a weight for each example.
using Piece = std::vector<AnyTensor>;

// Reads the steps of one loop. All processes make and use it alike.
class PieceReader {
 public:
  PieceReader() = default;
  PieceReader(const PieceReader&) = delete;
  PieceReader& operator=(const PieceReader&) = delete;
  virtual ~PieceReader() = default;
  // Replaces the pieces of this process's replicas, which hold until the next call. Returns false at the end.
  virtual bool next(std::vector<Piece>& pieces) = 0;
  // Returns the rows of all replicas in the latest step, if they are known without a message.
  virtual std::optional<std::int64_t> global_rows() const = 0;
  // Returns the number of steps, data::infinite or data::unknown_length: the same in all processes.
  virtual std::int64_t steps() const = 0;
  // Is DistributedIterator::travel_with().
  virtual void travel_with(GradientReducer& reducer) = 0;
};

// Opens loops over one division of the data.
class PieceSource {
 public:
  PieceSource() = default;
  PieceSource(const PieceSource&) = delete;
  PieceSource& operator=(const PieceSource&) = delete;
  virtual ~PieceSource() = default;
  virtual std::unique_ptr<PieceReader> open() = 0;
};

// Describes how arrays become batches.
struct ArrayOptions {
  std::int64_t first_row = 0;
  std::int64_t end_row = 0;
  std::int64_t batch_size = 32;
  bool is_shuffled = false;
  std::optional<std::uint64_t> seed = {};
};
std::unique_ptr<PieceSource> divide_arrays(Strategy& strategy, Piece arrays, const ArrayOptions& options,
                                           const InputOptions& input);
// Throws Error usage, with Keras' words, unless all arrays have the same number of rows. Returns it.
std::int64_t rows_of_arrays(const Piece& arrays);

// Tells whether E is a tensor, or a tuple or pair of up to three of them.
template <class E>
struct IsExample : std::false_type {};
template <class T>
struct IsExample<Tensor<T>> : std::true_type {};
template <class... T>
struct IsExample<std::tuple<Tensor<T>...>> : std::bool_constant<(sizeof...(T) > 0 && sizeof...(T) <= 3)> {};
template <class A, class B>
struct IsExample<std::pair<Tensor<A>, Tensor<B>>> : std::true_type {};

template <class E>
class DatasetReader final : public PieceReader {
 public:
  DatasetReader(const DistributedDataset<E>& dataset, int replicas)
      : iterator_(dataset.open()),
        batch_(lockstep::detail::regroup(std::deque<E>(static_cast<std::size_t>(replicas)))) {}
  bool next(std::vector<Piece>& pieces) override {
    if (!iterator_.next(batch_)) return false;
    for (std::size_t local = 0; local < pieces.size(); ++local) {
      pieces[local].clear();
      lockstep::detail::for_each_leaf(
          batch_, [&](auto& leaf) { pieces[local].push_back(AnyTensor::view_of(leaf[static_cast<int>(local)])); });
    }
    return true;
  }
  std::optional<std::int64_t> global_rows() const override { return iterator_.global_rows(); }
  std::int64_t steps() const override { return iterator_.steps(); }
  void travel_with(GradientReducer& reducer) override { iterator_.travel_with(reducer); }

 private:
  DistributedIterator<E> iterator_;
  typename DistributedIterator<E>::Batch batch_;
};

template <class E>
class DatasetSource final : public PieceSource {
 public:
  DatasetSource(const Strategy& strategy, DistributedDataset<E> dataset)
      : replicas_(strategy.num_local_replicas()), dataset_(std::move(dataset)) {}
  std::unique_ptr<PieceReader> open() override { return std::make_unique<DatasetReader<E>>(dataset_, replicas_); }

 private:
  int replicas_;
  DistributedDataset<E> dataset_;
};

// Is a value. Copies share the data.
class ModelData {
 public:
  // Takes a data set of batches, which the model's strategy divides. An element is (features, labels) or (features,
  // labels, weights), or the features alone for predict().
  template <class E>
  ModelData(Dataset<E> dataset)  // NOLINT(google-explicit-constructor): a data set is data
      : divide_([dataset = std::move(dataset)](Strategy& strategy, const InputOptions& options) {
          return source_of(strategy, strategy.distribute(dataset, options));
        }) {
    check_element<E>();
  }
  // Takes a data set that the model's strategy has divided.
  template <class E>
  ModelData(DistributedDataset<E> dataset)  // NOLINT(google-explicit-constructor)
      : divide_([dataset = std::move(dataset)](Strategy& strategy, const InputOptions& /*options*/) {
          return source_of(strategy, dataset);
        }) {
    check_element<E>();
  }
  // Take arrays over: features, labels, and a weight for each example.
  template <class X>
  explicit ModelData(Tensor<X> features) : arrays_({AnyTensor(std::move(features))}) {}
  template <class X, class Y>
  ModelData(Tensor<X> features, Tensor<Y> labels)
      : arrays_({AnyTensor(std::move(features)), AnyTensor(std::move(labels))}) {}
  template <class X, class Y>
  ModelData(Tensor<X> features, Tensor<Y> labels, Tensor<float> weights)
      : arrays_({AnyTensor(std::move(features)), AnyTensor(std::move(labels)), AnyTensor(std::move(weights))}) {}
  // Refers to arrays, which must outlive all copies of the result.
  template <class... T>
  static ModelData view_of(const Tensor<T>&... arrays) {
    ModelData data;
    // An AnyTensor can be written; these are only read.
    (data.arrays_.push_back(AnyTensor::view_of(const_cast<Tensor<T>&>(arrays))), ...);
    return data;
  }

  // True for arrays, of which some options speak.
  bool is_arrays() const { return !divide_; }
  const Piece& arrays() const { return arrays_; }
  // Divides a data set among the replicas.
  std::unique_ptr<PieceSource> divide(Strategy& strategy, const InputOptions& options) const {
    return divide_(strategy, options);
  }

 private:
  ModelData() = default;
  template <class E>
  static std::unique_ptr<PieceSource> source_of(const Strategy& strategy, DistributedDataset<E> dataset) {
    check_strategies(strategy, dataset.strategy());
    return std::make_unique<DatasetSource<E>>(strategy, std::move(dataset));
  }
  // Throws Error usage unless the model's strategy has divided the data.
  static void check_strategies(const Strategy& of_model, const Strategy& of_data);
  template <class E>
  static constexpr void check_element() {
    static_assert(IsExample<E>::value,
                  "lockstep: the elements of a model's data are batches: a tensor of features, or a tuple (features, "
                  "labels) or (features, labels, weights) of tensors; call batch() first");
  }

  std::function<std::unique_ptr<PieceSource>(Strategy&, const InputOptions&)> divide_;
  Piece arrays_;
};

}  // namespace lockstep::train
