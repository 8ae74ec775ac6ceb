// SPDX-License-Identifier: Apache-2.0
// Has batch normalization, with statistics of this replica or of all. Sums are f64. Statistics enter the op as
// constants; the backward pass knows that they follow from the batch.
#include <algorithm>
#include <cmath>

#include "runtime/replica_context.hpp"
#include "runtime/train/op.hpp"
#include "runtime/train/ops.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

// Calls `function(i, j)` for each element, by its index and its channel.
template <class F>
void for_each_channel(std::size_t size, std::size_t channels, F&& function) {
  for (std::size_t i = 0; i < size; i += channels) {
    for (std::size_t j = 0; j < channels; ++j) function(i + j, j);
  }
}

// Holds the number of rows, and then two sums for each channel: as one message.
class ChannelSums {
 public:
  explicit ChannelSums(std::size_t channels) : channels_(channels), numbers_(1 + 2 * channels) {}
  double& rows() { return numbers_[0]; }
  double* first() { return numbers_.data() + 1; }
  double* second() { return numbers_.data() + 1 + channels_; }
  void add_up(ReplicaContext* replica) {
    if (replica != nullptr && replica->num_replicas_in_sync() > 1) replica->all_reduce(numbers_, sum);
  }

 private:
  std::size_t channels_;
  std::vector<double> numbers_;
};

struct BatchStatistics {
  AnyTensor mean;
  AnyTensor variance;
  double rows;
};
// Sums the squares of differences from this batch's mean. Several replicas exchange sums and sums of squares instead.
// In f64 these lose about 1e-16 of the squared mean, which is exact enough for f32.
template <class T>
BatchStatistics statistics_of(const AnyTensor& x, ReplicaContext* replica) {
  const auto channels = static_cast<std::size_t>(x.shape()[-1]);
  const T* const elements = x.span<T>().data();
  ChannelSums sums(channels);
  double* const mean = sums.first();
  double* const square = sums.second();
  const double rows = static_cast<double>(x.shape().outside(-1));
  for_each_channel(x.size(), channels, [=](std::size_t i, std::size_t j) { mean[j] += double{elements[i]}; });
  for (std::size_t j = 0; j < channels && rows > 0; ++j) mean[j] /= rows;
  for_each_channel(x.size(), channels, [=](std::size_t i, std::size_t j) {
    const double difference = double{elements[i]} - mean[j];
    square[j] += difference * difference;
  });
  sums.rows() = rows;
  const bool is_alone = replica == nullptr || replica->num_replicas_in_sync() == 1;
  if (!is_alone) {
    for (std::size_t j = 0; j < channels; ++j) {
      square[j] += rows * mean[j] * mean[j];
      mean[j] *= rows;
    }
    sums.add_up(replica);
  }
  const double all = std::max(1.0, sums.rows());
  const TensorShape shape{x.shape()[-1]};
  BatchStatistics result{uninitialized_tensor(x.type(), shape), uninitialized_tensor(x.type(), shape), all};
  for (std::size_t j = 0; j < channels; ++j) {
    const double whole = is_alone ? mean[j] : mean[j] / all;
    const double variance = is_alone ? square[j] / all : std::max(0.0, square[j] / all - whole * whole);
    result.mean.span<T>()[j] = static_cast<T>(whole);
    result.variance.span<T>()[j] = static_cast<T>(variance);
  }
  return result;
}

void check_images(std::string_view op, const AnyTensor& x) {
  if (x.shape().rank() < 2)
    refuse_inputs(op, text("a tensor of shape ", x.shape().to_string()), "give rows: the last axis has the channels");
}
// The inputs are x, scale, offset, mean and variance.
TensorShape batch_norm_shape(const OpAttributes& /*numbers*/, std::span<const AnyTensor> inputs) {
  const TensorShape& shape = inputs[0].shape();
  check_images("batch_norm", inputs[0]);
  for (std::size_t i = 1; i < inputs.size(); ++i) {
    if (inputs[i].type() != inputs[0].type() || inputs[i].shape() != TensorShape{shape[-1]})
      refuse_inputs("batch_norm",
                    text(to_string(inputs[i].type()), " of shape ", inputs[i].shape().to_string(), " for ",
                         to_string(inputs[0].type()), " of shape ", shape.to_string()),
                    text("give scale, offset, mean and variance of the shape (", shape[-1], ",)"));
  }
  return shape;
}

// Holds 1 / sqrt(variance + epsilon) of each channel.
template <class T>
std::vector<T> inverse_deviations(const AnyTensor& variance, double epsilon) {
  std::vector<T> all;
  for (const T each : variance.span<T>()) all.push_back(static_cast<T>(1 / std::sqrt(double{each} + epsilon)));
  return all;
}

void batch_norm_forward(OpCall& call) {
  with_float_type("batch_norm", call.output.type(), [&]<class T>(T /*type*/) {
    std::vector<T> factor = inverse_deviations<T>(call.inputs[4], call.attributes.number);
    for (std::size_t j = 0; j < factor.size(); ++j) factor[j] *= call.inputs[1].span<T>()[j];
    const T* const x = call.inputs[0].span<T>().data();
    const T* const mean = call.inputs[3].span<T>().data();
    const T* const offset = call.inputs[2].span<T>().data();
    T* const y = call.output.span<T>().data();
    for_each_channel(call.output.size(), factor.size(), [=, by = factor.data()](std::size_t i, std::size_t j) {
      y[i] = (x[i] - mean[j]) * by[j] + offset[j];
    });
  });
}

// Holds the sums that both backward passes need: of dy, and of dy * (x - mean) / deviation.
template <class T>
struct NormalizedGradient {
  explicit NormalizedGradient(BackwardCall& call)
      : inverse(inverse_deviations<T>(call.input(4), call.attributes().number)), sums(inverse.size()) {
    const T* const x = call.input(0).span<T>().data();
    const T* const mean = call.input(3).span<T>().data();
    const T* const dy = call.gradient().span<T>().data();
    double* const plain = sums.first();
    double* const scaled = sums.second();
    for_each_channel(call.gradient().size(), inverse.size(), [=, by = inverse.data()](std::size_t i, std::size_t j) {
      plain[j] += double{dy[i]};
      scaled[j] += double{dy[i]} * double{(x[i] - mean[j]) * by[j]};
    });
    if (call.wants(1)) std::transform(scaled, scaled + inverse.size(), call.into(1).span<T>().begin(), narrow);
    if (call.wants(2)) std::transform(plain, plain + inverse.size(), call.into(2).span<T>().begin(), narrow);
  }
  static T narrow(double number) { return static_cast<T>(number); }

  std::vector<T> inverse;
  ChannelSums sums;
};

// Is the gradient with statistics that follow from the batch. attributes.upper is the number of rows of all replicas.
void trained_norm_backward(BackwardCall& call) {
  with_float_type("batch_norm", call.output().type(), [&]<class T>(T /*type*/) {
    NormalizedGradient<T> known(call);
    if (!call.wants(0)) return;
    known.sums.add_up(call.attributes().replica);
    const std::size_t channels = known.inverse.size();
    std::vector<T> mean_dy(channels);
    std::vector<T> mean_scaled(channels);
    std::vector<T> factor(channels);
    for (std::size_t j = 0; j < channels; ++j) {
      mean_dy[j] = static_cast<T>(known.sums.first()[j] / call.attributes().upper);
      mean_scaled[j] = static_cast<T>(known.sums.second()[j] / call.attributes().upper) * known.inverse[j];
      factor[j] = known.inverse[j] * call.input(1).span<T>()[j];
    }
    const T* const x = call.input(0).span<T>().data();
    const T* const mean = call.input(3).span<T>().data();
    const T* const dy = call.gradient().span<T>().data();
    T* const dx = call.into(0).span<T>().data();
    for_each_channel(
        call.gradient().size(), channels,
        [=, of_dy = mean_dy.data(), scaled = mean_scaled.data(), by = factor.data()](std::size_t i, std::size_t j) {
          dx[i] = by[j] * (dy[i] - of_dy[j] - (x[i] - mean[j]) * scaled[j]);
        });
  });
}
constexpr Op trained_norm_op = {"batch_norm", batch_norm_shape, batch_norm_forward, trained_norm_backward};

// Is the gradient with statistics that are inputs like the others.
void given_norm_backward(BackwardCall& call) {
  with_float_type("batch_norm", call.output().type(), [&]<class T>(T /*type*/) {
    NormalizedGradient<T> known(call);
    const std::size_t channels = known.inverse.size();
    std::vector<T> factor(channels);
    for (std::size_t j = 0; j < channels; ++j) factor[j] = known.inverse[j] * call.input(1).span<T>()[j];
    if (call.wants(0)) {
      const T* const dy = call.gradient().span<T>().data();
      T* const dx = call.into(0).span<T>().data();
      for_each_channel(call.gradient().size(), channels,
                       [=, by = factor.data()](std::size_t i, std::size_t j) { dx[i] = dy[i] * by[j]; });
    }
    for (std::size_t j = 0; j < channels; ++j) {
      const double slope = double{factor[j]};
      if (call.wants(3)) call.into(3).span<T>()[j] = static_cast<T>(-slope * known.sums.first()[j]);
      if (call.wants(4))
        call.into(4).span<T>()[j] = static_cast<T>(-0.5 * slope * double{known.inverse[j]} * known.sums.second()[j]);
    }
  });
}
constexpr Op given_norm_op = {"batch_norm", batch_norm_shape, batch_norm_forward, given_norm_backward};

NormalizedBatch normalize(ReplicaContext* replica, const TapeTensor& x, const TapeTensor& scale,
                          const TapeTensor& offset, double epsilon) {
  check_images("batch_norm", x.tensor());
  std::optional<BatchStatistics> statistics;
  with_float_type("batch_norm", x.type(),
                  [&]<class T>(T /*type*/) { statistics = statistics_of<T>(x.tensor(), replica); });
  const TapeTensor mean = statistics->mean;
  const TapeTensor variance = statistics->variance;
  return {apply(trained_norm_op, {x, scale, offset, mean, variance},
                {.number = epsilon, .upper = statistics->rows, .replica = replica}),
          mean, variance};
}

}  // namespace

NormalizedBatch batch_norm(const TapeTensor& x, const TapeTensor& scale, const TapeTensor& offset, double epsilon) {
  return normalize(nullptr, x, scale, offset, epsilon);
}
NormalizedBatch batch_norm(ReplicaContext& replica, const TapeTensor& x, const TapeTensor& scale,
                           const TapeTensor& offset, double epsilon) {
  return normalize(&replica, x, scale, offset, epsilon);
}
TapeTensor batch_norm(const TapeTensor& x, const TapeTensor& scale, const TapeTensor& offset, const TapeTensor& mean,
                      const TapeTensor& variance, double epsilon) {
  return apply(given_norm_op, {x, scale, offset, mean, variance}, {.number = epsilon});
}

}  // namespace lockstep::train
