// SPDX-License-Identifier: Apache-2.0
// Applies relu and its gradient, and sums columns. Results have the same bits on all vectors.
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

// Write the sum of each column of a matrix in row-major order without gaps: the gradient of a bias. Rows are added in
// order in blocks of 256, each from zero, and the blocks in order.
void column_sums(const float* values, std::size_t rows, std::size_t columns, float* sums);
void column_sums(const double* values, std::size_t rows, std::size_t columns, double* sums);

}  // namespace lockstep::train::compute
