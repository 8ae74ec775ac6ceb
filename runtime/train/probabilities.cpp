// SPDX-License-Identifier: Apache-2.0
// Has softmax and the cross-entropies. The largest logit of a row is subtracted first, so no exponential overflows.
#include <algorithm>
#include <cmath>

#include "runtime/train/op.hpp"
#include "runtime/train/ops.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

// Is the last axis of logits, as rows.
struct LogitRows {
  explicit LogitRows(const TensorShape& shape)
      : number(shape.outside(-1)), length(static_cast<std::size_t>(shape[-1])) {}
  std::size_t number;
  std::size_t length;
};
void check_logits(std::string_view op, const AnyTensor& logits) {
  if (logits.shape().rank() == 0 || logits.shape()[-1] == 0)
    refuse_inputs(op, text("logits of shape ", logits.shape().to_string()), "give one class at least in the last axis");
}

// Holds the largest logit of a row, and the sum of the exponentials of logits less it.
template <class T>
struct RowScale {
  T largest{};
  T sum{};

  explicit RowScale(std::span<const T> row) : largest(*std::ranges::max_element(row)) {
    for (const T x : row) sum += std::exp(x - largest);
  }
  T log_probability(T x) const { return x - largest - std::log(sum); }
};

// Calls `function(x, y, length)` for each row of both tensors.
template <class F>
void softmax_rows(std::string_view op, OpCall& call, F&& function) {
  const LogitRows rows(call.output.shape());
  with_float_type(op, call.output.type(), [&]<class T>(T /*type*/) {
    const T* x = call.inputs[0].span<T>().data();
    T* y = call.output.span<T>().data();
    for (std::size_t i = 0; i < rows.number; ++i, x += rows.length, y += rows.length) function(x, y, rows.length);
  });
}
// Calls `function(y, dy, dx, length)` for each row.
template <class F>
void softmax_gradient_rows(std::string_view op, BackwardCall& call, F&& function) {
  const LogitRows rows(call.output().shape());
  with_float_type(op, call.output().type(), [&]<class T>(T /*type*/) {
    const T* y = call.output().span<T>().data();
    const T* dy = call.gradient().span<T>().data();
    T* dx = call.into(0).span<T>().data();
    for (std::size_t i = 0; i < rows.number; ++i, y += rows.length, dy += rows.length, dx += rows.length)
      function(y, dy, dx, rows.length);
  });
}

template <bool is_log>
TensorShape softmax_shape(const OpAttributes& /*none*/, std::span<const AnyTensor> inputs) {
  check_logits(is_log ? "log_softmax" : "softmax", inputs[0]);
  return inputs[0].shape();
}
void softmax_forward(OpCall& call) {
  softmax_rows("softmax", call, []<class T>(const T* x, T* y, std::size_t length) {
    const RowScale<T> scale(std::span(x, length));
    for (std::size_t j = 0; j < length; ++j) y[j] = std::exp(x[j] - scale.largest) / scale.sum;
  });
}
void softmax_backward(BackwardCall& call) {
  softmax_gradient_rows("softmax", call, []<class T>(const T* y, const T* dy, T* dx, std::size_t length) {
    T sum{};
    for (std::size_t j = 0; j < length; ++j) sum += y[j] * dy[j];
    for (std::size_t j = 0; j < length; ++j) dx[j] = y[j] * (dy[j] - sum);
  });
}
constexpr Op softmax_op = {"softmax", softmax_shape<false>, softmax_forward, softmax_backward};

void log_softmax_forward(OpCall& call) {
  softmax_rows("log_softmax", call, []<class T>(const T* x, T* y, std::size_t length) {
    const RowScale<T> scale(std::span(x, length));
    for (std::size_t j = 0; j < length; ++j) y[j] = scale.log_probability(x[j]);
  });
}
void log_softmax_backward(BackwardCall& call) {
  softmax_gradient_rows("log_softmax", call, []<class T>(const T* y, const T* dy, T* dx, std::size_t length) {
    T sum{};
    for (std::size_t j = 0; j < length; ++j) sum += dy[j];
    for (std::size_t j = 0; j < length; ++j) dx[j] = dy[j] - std::exp(y[j]) * sum;
  });
}
constexpr Op log_softmax_op = {"log_softmax", softmax_shape<true>, log_softmax_forward, log_softmax_backward};

// Cross-entropies take labels and logits. Their backward pass computes the probabilities of each row again, which costs
// less than keeping them.
DataType type_of_logits(const OpAttributes& /*none*/, std::span<const AnyTensor> inputs) { return inputs[1].type(); }

void refuse_labels(std::string_view op, std::span<const AnyTensor> inputs, std::string_view remedy) {
  refuse_inputs(op,
                text("labels of ", to_string(inputs[0].type()), " of shape ", inputs[0].shape().to_string(),
                     " for logits of ", to_string(inputs[1].type()), " of shape ", inputs[1].shape().to_string()),
                remedy);
}
TensorShape softmax_cross_entropy_shape(const OpAttributes& /*none*/, std::span<const AnyTensor> inputs) {
  check_logits("softmax_cross_entropy", inputs[1]);
  if (inputs[0].type() != inputs[1].type() || inputs[0].shape() != inputs[1].shape())
    refuse_labels("softmax_cross_entropy", inputs, "give labels of the type and the shape of the logits");
  return inputs[1].shape().without(-1);
}
void softmax_cross_entropy_forward(OpCall& call) {
  const LogitRows rows(call.inputs[1].shape());
  with_float_type("softmax_cross_entropy", call.output.type(), [&]<class T>(T /*type*/) {
    const T* z = call.inputs[0].span<T>().data();
    const T* x = call.inputs[1].span<T>().data();
    for (T& y : call.output.span<T>()) {
      const RowScale<T> scale(std::span(x, rows.length));
      y = 0;
      for (std::size_t j = 0; j < rows.length; ++j) y -= *z++ * scale.log_probability(*x++);
    }
  });
}
// Is right for labels that sum to 1; TensorFlow has the same gradient for others.
void softmax_cross_entropy_backward(BackwardCall& call) {
  if (!call.wants(1)) return;
  const LogitRows rows(call.input(1).shape());
  with_float_type("softmax_cross_entropy", call.output().type(), [&]<class T>(T /*type*/) {
    const T* z = call.input(0).span<T>().data();
    const T* x = call.input(1).span<T>().data();
    T* dx = call.into(1).span<T>().data();
    for (const T dy : call.gradient().span<T>()) {
      const RowScale<T> scale(std::span(x, rows.length));
      for (std::size_t j = 0; j < rows.length; ++j) *dx++ = dy * (std::exp(*x++ - scale.largest) / scale.sum - *z++);
    }
  });
}
constexpr Op softmax_cross_entropy_op = {"softmax_cross_entropy", softmax_cross_entropy_shape,
                                         softmax_cross_entropy_forward, softmax_cross_entropy_backward, type_of_logits};

// Returns the numbers of the classes. Null stands for another type than i32, i64 and u8.
std::optional<std::vector<std::int64_t>> classes_in(const AnyTensor& labels) {
  std::vector<std::int64_t> classes(labels.size());
  const auto copy = [&](auto span) { std::ranges::copy(span, classes.begin()); };
  if (labels.type() == DataType::i32)
    copy(labels.span<std::int32_t>());
  else if (labels.type() == DataType::i64)
    copy(labels.span<std::int64_t>());
  else if (labels.type() == DataType::u8)
    copy(labels.span<std::uint8_t>());
  else
    return std::nullopt;
  return classes;
}
TensorShape sparse_cross_entropy_shape(const OpAttributes& /*none*/, std::span<const AnyTensor> inputs) {
  check_logits("sparse_softmax_cross_entropy", inputs[1]);
  const std::optional<std::vector<std::int64_t>> classes = classes_in(inputs[0]);
  if (!classes || inputs[0].shape() != inputs[1].shape().without(-1))
    refuse_labels("sparse_softmax_cross_entropy", inputs,
                  text("give labels of i32, i64 or u8, of shape ", inputs[1].shape().without(-1).to_string()));
  const std::int64_t number = inputs[1].shape()[-1];
  for (std::size_t i = 0; i < classes->size(); ++i) {
    if ((*classes)[i] < 0 || (*classes)[i] >= number)
      refuse_inputs("sparse_softmax_cross_entropy",
                    text("row ", i, " has class ", (*classes)[i], ", and the logits have ", number, " classes"),
                    text("give classes from 0 to ", number - 1));
  }
  return inputs[0].shape();
}
void sparse_cross_entropy_forward(OpCall& call) {
  const LogitRows rows(call.inputs[1].shape());
  const std::vector<std::int64_t> classes = *classes_in(call.inputs[0]);
  with_float_type("sparse_softmax_cross_entropy", call.output.type(), [&]<class T>(T /*type*/) {
    const T* const x = call.inputs[1].span<T>().data();
    T* const y = call.output.span<T>().data();
    for (std::size_t i = 0; i < rows.number; ++i) {
      const T* const row = x + i * rows.length;
      y[i] = -RowScale<T>(std::span(row, rows.length)).log_probability(row[classes[i]]);
    }
  });
}
void sparse_cross_entropy_backward(BackwardCall& call) {
  if (!call.wants(1)) return;
  const LogitRows rows(call.input(1).shape());
  const std::vector<std::int64_t> classes = *classes_in(call.input(0));
  with_float_type("sparse_softmax_cross_entropy", call.output().type(), [&]<class T>(T /*type*/) {
    const T* x = call.input(1).span<T>().data();
    const T* const dy = call.gradient().span<T>().data();
    T* dx = call.into(1).span<T>().data();
    for (std::size_t i = 0; i < rows.number; ++i, x += rows.length, dx += rows.length) {
      const RowScale<T> scale(std::span(x, rows.length));
      for (std::size_t j = 0; j < rows.length; ++j) dx[j] = dy[i] * (std::exp(x[j] - scale.largest) / scale.sum);
      dx[classes[i]] -= dy[i];
    }
  });
}
constexpr Op sparse_cross_entropy_op = {"sparse_softmax_cross_entropy", sparse_cross_entropy_shape,
                                        sparse_cross_entropy_forward, sparse_cross_entropy_backward, type_of_logits};

TensorShape sigmoid_cross_entropy_shape(const OpAttributes& /*none*/, std::span<const AnyTensor> inputs) {
  if (inputs[0].type() != inputs[1].type() || inputs[0].shape() != inputs[1].shape())
    refuse_labels("sigmoid_cross_entropy", inputs, "give labels of the type and the shape of the logits");
  return inputs[1].shape();
}
void sigmoid_cross_entropy_forward(OpCall& call) {
  with_float_type("sigmoid_cross_entropy", call.output.type(), [&]<class T>(T /*type*/) {
    std::ranges::transform(call.inputs[0].span<T>(), call.inputs[1].span<T>(), call.output.span<T>().begin(),
                           [](T z, T x) { return std::max(x, T{}) - x * z + std::log1p(std::exp(-std::abs(x))); });
  });
}
void sigmoid_cross_entropy_backward(BackwardCall& call) {
  if (!call.wants(1)) return;
  with_float_type("sigmoid_cross_entropy", call.output().type(), [&]<class T>(T /*type*/) {
    const T* const z = call.input(0).span<T>().data();
    const T* const x = call.input(1).span<T>().data();
    const T* const dy = call.gradient().span<T>().data();
    T* const dx = call.into(1).span<T>().data();
    for (std::size_t i = 0; i < call.gradient().size(); ++i) {
      const T small = std::exp(-std::abs(x[i]));
      dx[i] = dy[i] * ((x[i] >= 0 ? 1 : small) / (1 + small) - z[i]);
    }
  });
}
constexpr Op sigmoid_cross_entropy_op = {"sigmoid_cross_entropy", sigmoid_cross_entropy_shape,
                                         sigmoid_cross_entropy_forward, sigmoid_cross_entropy_backward};

}  // namespace

TapeTensor softmax(const TapeTensor& logits) { return apply(softmax_op, {logits}); }
TapeTensor log_softmax(const TapeTensor& logits) { return apply(log_softmax_op, {logits}); }
TapeTensor softmax_cross_entropy(const TapeTensor& labels, const TapeTensor& logits) {
  return apply(softmax_cross_entropy_op, {labels, logits});
}
TapeTensor sparse_softmax_cross_entropy(const TapeTensor& labels, const TapeTensor& logits) {
  return apply(sparse_cross_entropy_op, {labels, logits});
}
TapeTensor sigmoid_cross_entropy(const TapeTensor& labels, const TapeTensor& logits) {
  return apply(sigmoid_cross_entropy_op, {labels, logits});
}

}  // namespace lockstep::train
