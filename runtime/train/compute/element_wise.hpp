// SPDX-License-Identifier: Apache-2.0
// Does what a training step does to each element, and sums columns. Results have the same bits on all vectors: products
// and sums are rounded one by one, never fused.
#pragma once

#include <cstddef>

namespace lockstep::train::compute {

// Replace negative numbers by zero; NaN stays. `from` may be `to`.
void relu(const float* from, float* to, std::size_t count);
void relu(const double* from, double* to, std::size_t count);

// Write the gradient of relu's argument: that of its output where the output is above zero, and zero elsewhere.
// `input_gradient` may be `output_gradient`.
void relu_gradient(const float* output, const float* output_gradient, float* input_gradient, std::size_t count);
void relu_gradient(const double* output, const double* output_gradient, double* input_gradient, std::size_t count);

// Add a number per column to each row of a matrix in row-major order without gaps, and apply relu if `has_relu`.
void add_bias(float* values, std::size_t rows, std::size_t columns, const float* bias, bool has_relu);
void add_bias(double* values, std::size_t rows, std::size_t columns, const double* bias, bool has_relu);

// Write the sum of each column of such a matrix: the gradient of a bias. Rows are added in order in blocks of 256, each
// from zero, and the blocks in order.
void column_sums(const float* values, std::size_t rows, std::size_t columns, float* sums);
void column_sums(const double* values, std::size_t rows, std::size_t columns, double* sums);

// Add factor * from to the elements of `to`.
void add_scaled(float* to, const float* from, float factor, std::size_t count);
void add_scaled(double* to, const double* from, double factor, std::size_t count);

// Subtract rate * gradient from weights: a step of stochastic gradient descent.
void descend(float* weights, const float* gradient, float rate, std::size_t count);
void descend(double* weights, const double* gradient, double rate, std::size_t count);

}  // namespace lockstep::train::compute
