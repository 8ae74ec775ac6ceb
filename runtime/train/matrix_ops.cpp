// SPDX-License-Identifier: Apache-2.0
// Has the ops that multiply matrices.
#include "runtime/train/compute/element_wise.hpp"
#include "runtime/train/compute/matrix_product.hpp"
#include "runtime/train/op.hpp"
#include "runtime/train/ops.hpp"
#include "topology/base/text.hpp"

namespace lockstep::train {
namespace {

// Is a matrix as it lies in memory, and whether it is meant transposed.
struct MatrixInput {
  const AnyTensor& tensor;
  std::int64_t rows;
  std::int64_t columns;
  bool is_transposed = false;

  MatrixInput(const AnyTensor& matrix, bool transposed)
      : MatrixInput(matrix, matrix.shape()[0], matrix.shape()[1], transposed) {}
  MatrixInput(const AnyTensor& elements, std::int64_t first, std::int64_t second, bool transposed)
      : tensor(elements), rows(first), columns(second), is_transposed(transposed) {}
  std::int64_t height() const { return is_transposed ? columns : rows; }
  std::int64_t width() const { return is_transposed ? rows : columns; }
  MatrixInput turned() const { return {tensor, rows, columns, !is_transposed}; }
};

template <class T>
compute::ProductOperand<T> operand_of(const MatrixInput& matrix) {
  return {matrix.tensor.span<T>().data(), static_cast<std::size_t>(matrix.columns), matrix.is_transposed};
}
template <class T>
void multiply(const MatrixInput& a, const MatrixInput& b, const AnyTensor& to,
              const compute::ProductEnding<T>& ending = {}) {
  const compute::ProductShape shape{static_cast<std::size_t>(a.height()), static_cast<std::size_t>(b.width()),
                                    static_cast<std::size_t>(a.width())};
  compute::matrix_product(shape, operand_of<T>(a), operand_of<T>(b), {to.span<T>().data(), shape.columns}, ending);
}

void check_types(std::string_view op, std::span<const AnyTensor> inputs) {
  for (const AnyTensor& each : inputs) {
    if (each.type() != inputs[0].type())
      refuse_inputs(op, text("tensors of ", to_string(inputs[0].type()), " and ", to_string(each.type())),
                    "convert one of them: cast<float>(tensor)");
  }
}

// The flags are whether a and b are transposed.
TensorShape matmul_shape(const OpAttributes& flags, std::span<const AnyTensor> inputs) {
  check_types("matmul", inputs);
  if (inputs[0].shape().rank() != 2 || inputs[1].shape().rank() != 2)
    refuse_inputs("matmul",
                  text("tensors of the shapes ", inputs[0].shape().to_string(), " and ", inputs[1].shape().to_string()),
                  "give two matrices; reshape() makes one of other tensors");
  const MatrixInput a(inputs[0], flags.integers[0] != 0);
  const MatrixInput b(inputs[1], flags.integers[1] != 0);
  if (a.width() != b.height())
    refuse_inputs(
        "matmul",
        text("matrices of the shapes ", inputs[0].shape().to_string(), a.is_transposed ? " transposed" : "", " and ",
             inputs[1].shape().to_string(), b.is_transposed ? " transposed" : ""),
        text("the first one's ", a.width(), " columns must be as many as the second one's ", b.height(), " rows"));
  return {a.height(), b.width()};
}
void matmul_forward(OpCall& call) {
  with_float_type("matmul", call.output.type(), [&]<class T>(T /*type*/) {
    multiply<T>({call.inputs[0], call.attributes.integers[0] != 0}, {call.inputs[1], call.attributes.integers[1] != 0},
                call.output);
  });
}
// With y = a b the gradients are dy b' and a' dy, or their transposes.
void matmul_backward(BackwardCall& call) {
  with_float_type("matmul", call.output().type(), [&]<class T>(T /*type*/) {
    const MatrixInput a(call.input(0), call.attributes().integers[0] != 0);
    const MatrixInput b(call.input(1), call.attributes().integers[1] != 0);
    const MatrixInput dy(call.gradient(), false);
    if (call.wants(0)) {
      if (a.is_transposed)
        multiply<T>(b, dy.turned(), call.into(0));
      else
        multiply<T>(dy, b.turned(), call.into(0));
    }
    if (call.wants(1)) {
      if (b.is_transposed)
        multiply<T>(dy.turned(), a, call.into(1));
      else
        multiply<T>(a.turned(), dy, call.into(1));
    }
  });
}
constexpr Op matmul_op = {"matmul", matmul_shape, matmul_forward, matmul_backward};

// Takes the rows of x: all axes but the last one count as one.
MatrixInput rows_of(const AnyTensor& x) {
  const std::int64_t width = x.shape()[-1];
  return {x, static_cast<std::int64_t>(x.shape().outside(-1)), width, false};
}
TensorShape dense_shape(const OpAttributes& /*flags*/, std::span<const AnyTensor> inputs) {
  check_types("dense", inputs);
  const TensorShape& x = inputs[0].shape();
  const TensorShape& w = inputs[1].shape();
  const TensorShape& b = inputs[2].shape();
  if (x.rank() < 1 || w.rank() != 2 || x[-1] != w[0])
    refuse_inputs("dense", text("rows of shape ", x.to_string(), " and weights of shape ", w.to_string()),
                  "weights have the shape (length of a row, units)");
  if (b.rank() != 1 || b[0] != w[1])
    refuse_inputs("dense", text("a bias of shape ", b.to_string(), " for weights of shape ", w.to_string()),
                  text("give a bias of shape (", w[1], ",)"));
  return x.with(-1, w[1]);
}
void dense_forward(OpCall& call) {
  with_float_type("dense", call.output.type(), [&]<class T>(T /*type*/) {
    multiply<T>(rows_of(call.inputs[0]), {call.inputs[1], false}, call.output,
                {.bias = call.inputs[2].span<T>().data(), .relu = call.attributes.integers[0] != 0});
  });
}
void dense_backward(BackwardCall& call) {
  with_float_type("dense", call.output().type(), [&]<class T>(T /*type*/) {
    AnyTensor gradient = call.gradient();
    if (call.attributes().integers[0] != 0) {
      gradient = uninitialized_tensor(gradient.type(), gradient.shape());
      compute::relu_gradient(call.output().span<T>().data(), call.gradient().span<T>().data(),
                             gradient.span<T>().data(), gradient.size());
    }
    const MatrixInput dy = rows_of(gradient);
    if (call.wants(0)) multiply<T>(dy, {call.input(1), true}, call.into(0));
    if (call.wants(1)) multiply<T>(rows_of(call.input(0)).turned(), dy, call.into(1));
    if (call.wants(2))
      compute::column_sums(gradient.span<T>().data(), static_cast<std::size_t>(dy.rows),
                           static_cast<std::size_t>(dy.columns), call.into(2).span<T>().data());
  });
}
constexpr Op dense_op = {"dense", dense_shape, dense_forward, dense_backward};

}  // namespace

TapeTensor matmul(const TapeTensor& a, const TapeTensor& b, const MatrixOptions& options) {
  return apply(matmul_op, {a, b}, {.integers = {options.transpose_a ? 1 : 0, options.transpose_b ? 1 : 0}});
}

TapeTensor dense(const TapeTensor& x, const TapeTensor& w, const TapeTensor& b, FusedActivation activation) {
  return apply(dense_op, {x, w, b}, {.integers = {activation == FusedActivation::relu ? 1 : 0}});
}

}  // namespace lockstep::train
