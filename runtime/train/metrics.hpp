// SPDX-License-Identifier: Apache-2.0
// Measures models over many batches.
//   metrics::SparseCategoricalAccuracy accuracy;   // in the strategy's scope
//   strategy.run([&] { accuracy.update(labels, model(images)); });
//   accuracy.result()
// A metric is a variable of f64 with the sums of values and weights. It is synchronised on read: each replica adds its
// examples in their order to its own part, without a message, and a result adds the parts by the balanced tree. So
// counts are exact, and all layouts of the same replicas get the same bits.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/any_variable.hpp"
#include "runtime/train/tape_tensor.hpp"

namespace lockstep::train {

// Is a handle: copies refer to the same sums. It belongs to the strategy in whose scope it was made.
class Metric {
 public:
  // Returns the value of each example, or of each element of it, from labels and predictions.
  using Function = std::function<TapeTensor(const TapeTensor& labels, const TapeTensor& predictions)>;
  // Is the mean of a function's values over all examples.
  Metric(Function function, std::string name);

  // Adds a batch: in a replica, to its own sums. Weights belong to examples; without them each counts once. Throws
  // Error usage in cross-replica context of several replicas.
  void update(const TapeTensor& labels, const TapeTensor& predictions, const TapeTensor* sample_weight = nullptr);
  void update(const TapeTensor& labels, const TapeTensor& predictions, const TapeTensor& sample_weight) {
    update(labels, predictions, &sample_weight);
  }
  // Returns the result over all replicas, and 0 without examples. All processes call it, and in a replica all replicas.
  float result(Origin origin = Origin::here()) const;
  // Forgets all examples: in a replica, its own. Otherwise all processes call it.
  void reset();
  const std::string& name() const;
  std::vector<AnyVariable> variables() const;

 protected:
  // Adds a batch to the sums.
  using Adder = std::function<void(const TapeTensor& labels, const TapeTensor& predictions,
                                   const TapeTensor* sample_weight, std::span<double> sums)>;
  // Is a quotient of two sums, or one sum.
  enum class Form : std::uint8_t { quotient, sum };
  Metric(Adder add, Form form, std::string name);

 private:
  friend std::vector<float> results(std::span<const Metric> metrics, Origin origin);
  class State;
  std::shared_ptr<State> state_;
};

// Returns the results of metrics of one strategy in one message. They are called as Metric::result() is.
std::vector<float> results(std::span<const Metric> metrics, Origin origin = Origin::here());

// Returns a metric by its word: accuracy (or acc), mean, sum, or the name of a metric below as mean_squared_error (or
// mse). The shapes of a batch decide which accuracy it is, as in Keras. Throws Error usage for another word.
Metric metric_of(std::string_view word, const TensorShape& labels, const TensorShape& predictions);

// Has the names of losses as well, so it is a namespace of its own.
namespace metrics {

// Are of values alone.
class Mean : public Metric {
 public:
  explicit Mean(std::string name = "mean");
  void update(const TapeTensor& values, const TapeTensor* sample_weight = nullptr);
  void update(const TapeTensor& values, const TapeTensor& sample_weight) { update(values, &sample_weight); }
};
class Sum : public Metric {
 public:
  explicit Sum(std::string name = "sum");
  void update(const TapeTensor& values, const TapeTensor* sample_weight = nullptr);
  void update(const TapeTensor& values, const TapeTensor& sample_weight) { update(values, &sample_weight); }
};

struct ThresholdOptions {
  float threshold = 0.5F;  // Greater predictions mean the class 1.
  std::string name = {};   // Defaults to the metric's own name.
};
struct BinaryAccuracy : Metric {
  explicit BinaryAccuracy(const ThresholdOptions& options = {});
};
// Compares the first of the greatest numbers of each row, in labels and predictions.
struct CategoricalAccuracy : Metric {
  explicit CategoricalAccuracy(std::string name = "categorical_accuracy");
};
// Takes labels that are numbers of classes.
struct SparseCategoricalAccuracy : Metric {
  explicit SparseCategoricalAccuracy(std::string name = "sparse_categorical_accuracy");
};
// Divides the true positives by all predicted ones, or by all true ones.
struct Precision : Metric {
  explicit Precision(const ThresholdOptions& options = {});
};
struct Recall : Metric {
  explicit Recall(const ThresholdOptions& options = {});
};
struct MeanSquaredError : Metric {
  explicit MeanSquaredError(std::string name = "mean_squared_error");
};
struct CrossentropyMetricOptions {
  bool from_logits = false;  // Otherwise predictions are probabilities.
  double label_smoothing = 0;
  std::string name = {};
};
struct BinaryCrossentropy : Metric {
  explicit BinaryCrossentropy(const CrossentropyMetricOptions& options = {});
};
struct CategoricalCrossentropy : Metric {
  explicit CategoricalCrossentropy(const CrossentropyMetricOptions& options = {});
};
struct SparseMetricOptions {
  bool from_logits = false;
  std::string name = {};
};
struct SparseCategoricalCrossentropy : Metric {
  explicit SparseCategoricalCrossentropy(const SparseMetricOptions& options = {});
};

}  // namespace metrics
}  // namespace lockstep::train
