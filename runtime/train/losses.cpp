// SPDX-License-Identifier: Apache-2.0
// Implements Keras' losses by ops.
#include "runtime/train/losses.hpp"

#include <algorithm>

#include "runtime/replica_context.hpp"
#include "runtime/strategy.hpp"
#include "runtime/train/convert.hpp"
#include "runtime/train/ops.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

constexpr double clip_bound = 1e-7;  // Is Keras' epsilon.

const AxisOptions over_last{.axes = {-1}};
const AxisOptions kept_last{.axes = {-1}, .keeps_axes = true};

TapeTensor as_float(const TapeTensor& x) {
  return x.type() == DataType::f32 || x.type() == DataType::f64 ? x : TapeTensor(converted<float>(x.tensor()));
}

TapeTensor expanded(const TapeTensor& x) {
  std::vector<std::int64_t> lengths = x.shape().lengths();
  lengths.push_back(1);
  return reshape(x, std::move(lengths));
}

TapeTensor squeezed(const TapeTensor& x) { return reshape(x, x.shape().without(-1).lengths()); }

// Gives labels and predictions the same number of axes, as Keras does: one of them may have a last axis of length 1
// more than the other.
void match_axes(TapeTensor& labels, TapeTensor& predictions) {
  const int difference = labels.shape().rank() - predictions.shape().rank();
  if (difference != 1 && difference != -1) return;
  TapeTensor& longer = difference > 0 ? labels : predictions;
  TapeTensor& shorter = difference > 0 ? predictions : labels;
  if (longer.shape()[-1] != 1) return;
  if (shorter.shape().rank() == 1)
    shorter = expanded(shorter);
  else
    longer = squeezed(longer);
}

void check_loss_shapes(std::string_view loss, const TapeTensor& labels, const TapeTensor& predictions) {
  if (labels.shape() == predictions.shape()) return;
  throw Error(Code::usage,
              text(loss, ": labels and predictions must have the same shape. Received: labels.shape=",
                   labels.shape().to_string(), ", predictions.shape=", predictions.shape().to_string()),
              "give one label for each prediction, labels first");
}

TapeTensor clipped(const TapeTensor& probabilities) { return clip(probabilities, clip_bound, 1 - clip_bound); }

TapeTensor number(double value) { return static_cast<float>(value); }

struct NamedLoss {
  std::string_view word;
  Loss (*make)();
};
constexpr NamedLoss named_losses[] = {
    {"mse", [] { return Loss(MeanSquaredError()); }},
    {"mean_squared_error", [] { return Loss(MeanSquaredError()); }},
    {"binary_crossentropy", [] { return Loss(BinaryCrossentropy()); }},
    {"categorical_crossentropy", [] { return Loss(CategoricalCrossentropy()); }},
    {"sparse_categorical_crossentropy", [] { return Loss(SparseCategoricalCrossentropy()); }},
};

Loss loss_named(std::string_view word) {
  for (const NamedLoss& each : named_losses) {
    if (each.word == word) return each.make();
  }
  throw Error(Code::usage, text("a loss of the name '", printable(word), "'"),
              "use mse, binary_crossentropy, categorical_crossentropy, or sparse_categorical_crossentropy");
}

// Returns losses times weights, which may lack axes on the right, or have one of length 1 more.
TapeTensor weighted(const TapeTensor& losses, const TapeTensor* weights) {
  if (weights == nullptr) return losses;
  TapeTensor factor = as_float(*weights);
  while (factor.shape().rank() > losses.shape().rank() && factor.shape()[-1] == 1) factor = squeezed(factor);
  while (factor.shape().rank() > 0 && factor.shape().rank() < losses.shape().rank()) factor = expanded(factor);
  TapeTensor product = losses * factor;
  if (product.shape() != losses.shape())
    throw Error(Code::usage,
                text("weights of the shape ", weights->shape().to_string(), " for losses of the shape ",
                     losses.shape().to_string()),
                "give one weight for each example");
  return product;
}

void refuse_cross_replica(std::string_view function) {
  if (!has_strategy() || !in_cross_replica_context()) return;
  throw Error(Code::usage,
              text("You are calling `", function,
                   "` in cross replica context, while it was expected to be called in replica context"),
              "call it in the function that run() calls");
}

std::int64_t count_all(std::int64_t mine) {
  ReplicaContext* const replica = replica_context();
  return replica == nullptr || replica->num_replicas_in_sync() == 1 ? mine : replica->all_reduce(mine, sum);
}

}  // namespace

TapeTensor mean_squared_error(const TapeTensor& labels, const TapeTensor& predictions) {
  TapeTensor wanted = as_float(labels);
  TapeTensor given = as_float(predictions);
  match_axes(wanted, given);
  check_loss_shapes("mean_squared_error", wanted, given);
  return reduce_mean(square(given - wanted), over_last);
}

TapeTensor binary_crossentropy(const TapeTensor& labels, const TapeTensor& predictions,
                               const CrossentropyOptions& options) {
  TapeTensor wanted = as_float(labels);
  TapeTensor given = as_float(predictions);
  match_axes(wanted, given);
  check_loss_shapes("binary_crossentropy", wanted, given);
  if (options.label_smoothing > 0)
    wanted = wanted * number(1 - options.label_smoothing) + number(options.label_smoothing / 2);
  if (options.from_logits) return reduce_mean(sigmoid_cross_entropy(wanted, given), over_last);
  const TapeTensor likely = clipped(given);
  const TapeTensor one = 1.F;
  return reduce_mean(-(wanted * log(likely) + (one - wanted) * log(one - likely)), over_last);
}

TapeTensor categorical_crossentropy(const TapeTensor& labels, const TapeTensor& predictions,
                                    const CrossentropyOptions& options) {
  TapeTensor wanted = as_float(labels);
  const TapeTensor given = as_float(predictions);
  check_loss_shapes("categorical_crossentropy", wanted, given);
  if (options.label_smoothing > 0) {
    const auto classes = static_cast<double>(wanted.shape()[-1]);
    wanted = wanted * number(1 - options.label_smoothing) + number(options.label_smoothing / classes);
  }
  if (options.from_logits) return softmax_cross_entropy(wanted, given);
  const TapeTensor likely = clipped(given / reduce_sum(given, kept_last));
  return -reduce_sum(wanted * log(likely), over_last);
}

TapeTensor sparse_categorical_crossentropy(const TapeTensor& labels, const TapeTensor& predictions, bool from_logits) {
  const bool is_number = labels.type() != DataType::f32 && labels.type() != DataType::f64;
  AnyTensor classes = is_number ? labels.tensor() : AnyTensor(converted<std::int64_t>(labels.tensor()));
  const TensorShape& given = predictions.shape();
  if (given.rank() > 0 && classes.shape().rank() == given.rank() && classes.shape()[-1] == 1)
    classes = classes.reshaped(classes.shape().without(-1));
  if (given.rank() == 0 || classes.shape() != given.without(-1))
    throw Error(Code::usage,
                text("Argument `output` must have rank (ndim) `target.ndim - 1`. Received: target.shape=",
                     labels.shape().to_string(), ", output.shape=", given.to_string()),
                "give the number of one class for each row of predictions, labels first");
  return sparse_softmax_cross_entropy(classes, from_logits ? predictions : log(clipped(predictions)));
}

Loss::Loss(std::string_view word) : Loss(loss_named(word)) {}

TapeTensor Loss::per_example(const TapeTensor& labels, const TapeTensor& predictions,
                             const TapeTensor* sample_weight) const {
  return weighted(function_(labels, predictions), sample_weight);
}

TapeTensor Loss::operator()(const TapeTensor& labels, const TapeTensor& predictions,
                            const TapeTensor* sample_weight) const {
  const bool divides = reduction_ != Reduction::none && reduction_ != Reduction::sum;
  if (divides && has_strategy() && get_strategy().num_replicas_in_sync() > 1)
    throw Error(Code::usage,
                "Please use `Reduction.SUM` or `Reduction.NONE` for loss reduction when losses are used with a "
                "strategy of several replicas, except for specifying losses in `compile()`",
                "make the loss with {.reduction = Reduction::none}, and divide by compute_average_loss()");
  TapeTensor losses = per_example(labels, predictions, sample_weight);
  if (reduction_ == Reduction::none) return losses;
  const TapeTensor total = reduce_sum(losses);
  return divides ? total / number(static_cast<double>(std::max<std::size_t>(losses.size(), 1))) : total;
}

MeanSquaredError::MeanSquaredError(const LossOptions& options)
    : Loss(mean_squared_error, options.reduction, "mean_squared_error") {}

BinaryCrossentropy::BinaryCrossentropy(const CrossentropyLossOptions& options)
    : Loss([how = CrossentropyOptions{options.from_logits, options.label_smoothing}](
               const TapeTensor& labels,
               const TapeTensor& predictions) { return binary_crossentropy(labels, predictions, how); },
           options.reduction, "binary_crossentropy") {}

CategoricalCrossentropy::CategoricalCrossentropy(const CrossentropyLossOptions& options)
    : Loss([how = CrossentropyOptions{options.from_logits, options.label_smoothing}](
               const TapeTensor& labels,
               const TapeTensor& predictions) { return categorical_crossentropy(labels, predictions, how); },
           options.reduction, "categorical_crossentropy") {}

SparseCategoricalCrossentropy::SparseCategoricalCrossentropy(const SparseLossOptions& options)
    : Loss(
          [from_logits = options.from_logits](const TapeTensor& labels, const TapeTensor& predictions) {
            return sparse_categorical_crossentropy(labels, predictions, from_logits);
          },
          options.reduction, "sparse_categorical_crossentropy") {}

TapeTensor compute_average_loss(const TapeTensor& per_example, const AverageOptions& options) {
  if (per_example.shape().rank() == 0)
    throw Error(
        Code::usage,
        "Invalid value passed for `per_example_loss`. Expected a tensor with at least rank 1. Received a scalar",
        "make the loss with {.reduction = Reduction::none}");
  if (options.global_batch_size && *options.global_batch_size < 0)
    throw Error(Code::usage, text("`global_batch_size` must be non-negative. Received: ", *options.global_batch_size),
                "give the number of examples of all replicas");
  if (!options.global_batch_size) refuse_cross_replica("compute_average_loss");
  const TapeTensor losses = weighted(per_example, options.sample_weight ? &*options.sample_weight : nullptr);
  const std::int64_t size = options.global_batch_size ? *options.global_batch_size : count_all(per_example.shape()[0]);
  return reduce_sum(losses) / number(static_cast<double>(std::max<std::int64_t>(size, 1)));
}

TapeTensor scale_regularization_loss(const TapeTensor& loss) {
  refuse_cross_replica("scale_regularization_loss");
  return reduce_sum(loss) / number(get_strategy().num_replicas_in_sync());
}

}  // namespace lockstep::train
