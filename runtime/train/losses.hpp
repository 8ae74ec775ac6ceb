// SPDX-License-Identifier: Apache-2.0
// Compares predictions with labels. Labels come first. In a training loop, each replica makes the losses of its
// examples an average over all replicas:
//   const TapeTensor loss = compute_average_loss(loss_of(labels, predictions), {.global_batch_size = 64});
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/train/tape_tensor.hpp"

namespace lockstep::train {

struct CrossentropyOptions {
  bool from_logits = false;  // Otherwise predictions are probabilities, which are clipped by 1e-7.
  double label_smoothing = 0;
};
// Return the loss of each example: of all indices but those of the last axis.
TapeTensor mean_squared_error(const TapeTensor& labels, const TapeTensor& predictions);
TapeTensor binary_crossentropy(const TapeTensor& labels, const TapeTensor& predictions,
                               const CrossentropyOptions& options = {});
TapeTensor categorical_crossentropy(const TapeTensor& labels, const TapeTensor& predictions,
                                    const CrossentropyOptions& options = {});
// Labels are the numbers of classes.
TapeTensor sparse_categorical_crossentropy(const TapeTensor& labels, const TapeTensor& predictions,
                                           bool from_logits = false);

// Tells how losses of examples become one number. `automatic` means sum_over_batch_size.
enum class Reduction : std::uint8_t { automatic, none, sum, sum_over_batch_size };

// Is a value: a function, a name, and a reduction.
class Loss {
 public:
  using Function = std::function<TapeTensor(const TapeTensor& labels, const TapeTensor& predictions)>;

  // Takes a function that returns the loss of each example.
  explicit Loss(Function function, Reduction reduction = Reduction::automatic, std::string name = "loss")
      : function_(std::move(function)), reduction_(reduction), name_(std::move(name)) {}
  // Takes a word: mse, mean_squared_error, binary_crossentropy, categorical_crossentropy or
  // sparse_categorical_crossentropy. Throws Error usage for another one.
  Loss(std::string_view word);                              // NOLINT(google-explicit-constructor)
  Loss(const char* word) : Loss(std::string_view(word)) {}  // NOLINT(google-explicit-constructor)

  // Returns the loss, reduced over this replica's examples. A replica does not know the batch sizes of the others. So a
  // reduction that divides by the batch size throws Error usage under a strategy of several replicas.
  TapeTensor operator()(const TapeTensor& labels, const TapeTensor& predictions,
                        const TapeTensor* sample_weight = nullptr) const;
  TapeTensor operator()(const TapeTensor& labels, const TapeTensor& predictions,
                        const TapeTensor& sample_weight) const {
    return (*this)(labels, predictions, &sample_weight);
  }
  // Returns the loss of each example, times its weight, without any reduction.
  TapeTensor per_example(const TapeTensor& labels, const TapeTensor& predictions,
                         const TapeTensor* sample_weight = nullptr) const;
  Reduction reduction() const { return reduction_; }
  const std::string& name() const { return name_; }  // Is Keras' name: "mean_squared_error".

 private:
  Function function_;
  Reduction reduction_;
  std::string name_;
};

struct LossOptions {
  Reduction reduction = Reduction::automatic;
};
struct CrossentropyLossOptions {
  bool from_logits = false;
  double label_smoothing = 0;
  Reduction reduction = Reduction::automatic;
};
struct SparseLossOptions {
  bool from_logits = false;
  Reduction reduction = Reduction::automatic;
};
struct MeanSquaredError : Loss {
  explicit MeanSquaredError(const LossOptions& options = {});
};
struct BinaryCrossentropy : Loss {
  explicit BinaryCrossentropy(const CrossentropyLossOptions& options = {});
};
struct CategoricalCrossentropy : Loss {
  explicit CategoricalCrossentropy(const CrossentropyLossOptions& options = {});
};
struct SparseCategoricalCrossentropy : Loss {
  explicit SparseCategoricalCrossentropy(const SparseLossOptions& options = {});
};

struct AverageOptions {
  std::optional<TapeTensor> sample_weight = {};
  // Defaults to the examples of all replicas, which they count by one message.
  std::optional<std::int64_t> global_batch_size = {};
};
// Returns this replica's share of the average over all replicas' examples: the shares add up to it. No examples give 0.
// Throws Error usage for a scalar, a negative size, and in cross-replica context without a size.
TapeTensor compute_average_loss(const TapeTensor& per_example, const AverageOptions& options = {});
// Returns the sum of the losses, divided by the number of replicas, so that the sum over replicas counts it once.
// Throws Error usage in cross-replica context.
TapeTensor scale_regularization_loss(const TapeTensor& loss);

}  // namespace lockstep::train
