// SPDX-License-Identifier: Apache-2.0
// Computes with tensors that a tape can follow. All ops take f32 and f64. Lengths of 1, and axes that are missing on
// the left, are repeated as by NumPy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/replica_context.hpp"
#include "runtime/train/tape_tensor.hpp"

namespace lockstep::train {

// Calculate element by element.
TapeTensor operator+(const TapeTensor& a, const TapeTensor& b);
TapeTensor operator-(const TapeTensor& a, const TapeTensor& b);
TapeTensor operator*(const TapeTensor& a, const TapeTensor& b);
TapeTensor operator/(const TapeTensor& a, const TapeTensor& b);
TapeTensor operator-(const TapeTensor& x);
TapeTensor square(const TapeTensor& x);
TapeTensor exp(const TapeTensor& x);
TapeTensor log(const TapeTensor& x);
TapeTensor sqrt(const TapeTensor& x);
TapeTensor tanh(const TapeTensor& x);
TapeTensor sigmoid(const TapeTensor& x);
TapeTensor relu(const TapeTensor& x);
TapeTensor softplus(const TapeTensor& x);
// Limits the elements. The gradient is 0 outside of the limits.
TapeTensor clip(const TapeTensor& x, double low, double high);

// Combine along axes, or along all of them. Negative axes count from the end. `keeps_axes` leaves axes of length 1.
struct AxisOptions {
  std::vector<int> axes = {};
  bool keeps_axes = false;
};
TapeTensor reduce_sum(const TapeTensor& x, const AxisOptions& options = {});
TapeTensor reduce_mean(const TapeTensor& x, const AxisOptions& options = {});
// The gradient of a maximum goes to equal elements in equal shares, as in TensorFlow.
TapeTensor reduce_max(const TapeTensor& x, const AxisOptions& options = {});

// Returns the product of two matrices, each transposed first if asked.
struct MatrixOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};
TapeTensor matmul(const TapeTensor& a, const TapeTensor& b, const MatrixOptions& options = {});

// Names a function that dense() and conv2d() apply to their result in the same pass.
enum class FusedActivation : std::uint8_t { none, relu };
// Returns activation(x w + b) of rows x: one op for a whole layer.
TapeTensor dense(const TapeTensor& x, const TapeTensor& w, const TapeTensor& b,
                 FusedActivation activation = FusedActivation::none);

// Tells how an image goes on outside: not at all, or by zeros, until the result is ceil(length / stride) long.
enum class Padding : std::uint8_t { valid, same };
struct ConvolutionOptions {
  std::int64_t stride_rows = 1;
  std::int64_t stride_columns = 1;
  Padding padding = Padding::valid;
};
// Convolves images of shape (batch, rows, columns, channels) with a kernel of shape (rows, columns, channels, filters).
TapeTensor conv2d(const TapeTensor& images, const TapeTensor& kernel, const ConvolutionOptions& options = {});
// Adds a bias for each filter, and applies the activation.
TapeTensor conv2d(const TapeTensor& images, const TapeTensor& kernel, const TapeTensor& bias,
                  const ConvolutionOptions& options = {}, FusedActivation activation = FusedActivation::none);
// Returns the maximum of each window of an image.
struct PoolOptions {
  std::int64_t rows = 2;
  std::int64_t columns = 2;
  std::int64_t stride_rows = 2;
  std::int64_t stride_columns = 2;
  Padding padding = Padding::valid;
};
TapeTensor max_pool(const TapeTensor& images, const PoolOptions& options = {});

// Change the arrangement of elements. One length of a shape may be -1: it follows from the others.
TapeTensor reshape(const TapeTensor& x, std::vector<std::int64_t> lengths);
// Permutes the axes; without `axes` it reverses their order.
TapeTensor transpose(const TapeTensor& x, std::vector<int> axes = {});
TapeTensor concat(std::span<const TapeTensor> parts, int axis);
inline TapeTensor concat(std::initializer_list<TapeTensor> parts, int axis) {
  return concat(std::span(parts.begin(), parts.size()), axis);
}
// Returns a box of elements: `lengths[i]` of axis i from `first[i]` on; -1 means all that are left.
TapeTensor slice(const TapeTensor& x, std::vector<std::int64_t> first, std::vector<std::int64_t> lengths);
// Returns rows of a table by their indices, a tensor of i32 or i64. The gradient of an f32 table has these rows only.
TapeTensor gather(const TapeTensor& table, const TapeTensor& indices);

// Return probabilities along the last axis, and their logarithms.
TapeTensor softmax(const TapeTensor& logits);
TapeTensor log_softmax(const TapeTensor& logits);
// Return the cross-entropy of each row, from logits, without overflow for any logits. Dense labels are probabilities
// of the shape of the logits; sparse ones are the numbers of classes, of i32, i64 or u8. Labels get no gradient.
TapeTensor softmax_cross_entropy(const TapeTensor& labels, const TapeTensor& logits);
TapeTensor sparse_softmax_cross_entropy(const TapeTensor& labels, const TapeTensor& logits);
// Returns the binary cross-entropy of each element, from logits.
TapeTensor sigmoid_cross_entropy(const TapeTensor& labels, const TapeTensor& logits);

// Normalizes over all axes but the last one. `mean` and `variance` of the batch come out beside the result, for moving
// averages; they get no gradient of their own.
struct NormalizedBatch {
  TapeTensor result;
  TapeTensor mean;
  TapeTensor variance;  // Is divided by the number of elements.
};
NormalizedBatch batch_norm(const TapeTensor& x, const TapeTensor& scale, const TapeTensor& offset, double epsilon);
// Combines the statistics of all replicas in one message, and the sums of the gradient in another.
NormalizedBatch batch_norm(ReplicaContext& replica, const TapeTensor& x, const TapeTensor& scale,
                           const TapeTensor& offset, double epsilon);
// Normalizes by given statistics.
TapeTensor batch_norm(const TapeTensor& x, const TapeTensor& scale, const TapeTensor& offset, const TapeTensor& mean,
                      const TapeTensor& variance, double epsilon);

// Sets a share of the elements to 0, and divides the others by the share that is left. The draws follow from the key
// and the element's position.
struct DropoutKey {
  std::uint64_t seed = 0;
  std::uint64_t stream = 0;  // Differs between replicas, layers and steps.
};
TapeTensor dropout(const TapeTensor& x, double rate, const DropoutKey& key);

// Combine tensors of all replicas. All replicas call them, and take their gradients, in the same order. The gradient of
// a sum is the sum of all replicas' gradients; that of all_gather is the replica's own part of that sum.
TapeTensor all_reduce_sum(ReplicaContext& replica, const TapeTensor& x);
TapeTensor all_reduce_mean(ReplicaContext& replica, const TapeTensor& x);
TapeTensor all_gather(ReplicaContext& replica, const TapeTensor& x, int axis = 0);

}  // namespace lockstep::train
