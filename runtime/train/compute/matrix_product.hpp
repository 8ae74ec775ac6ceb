// SPDX-License-Identifier: Apache-2.0
// Multiplies matrices on one thread: target (=, or +=) left * right, with a bias per column and relu on the way out.
//
// Every element of the target has a fixed order of additions. Its depth is cut into blocks of 256. The products of a
// block are added one after the other, from zero, with fused multiply-add; then the blocks' sums are added one after
// the other. So its bits depend on its row of the left and its column of the right operand alone: not on the other rows
// and columns, on its position, on the leading dimensions, or on the width of the vectors. This holds on processors
// with fused multiply-add (AVX2, AVX-512, Neon). Others round each product, so their bits differ; but they too are the
// same in every run. Of NaN only being one is promised, not its payload.
#pragma once

#include <cstddef>

namespace lockstep::train::compute {

// Gives the rows and columns of the target, and the length of the sums.
struct ProductShape {
  std::size_t rows = 0;
  std::size_t columns = 0;
  std::size_t depth = 0;
};

// Refers to a matrix in row-major order. `stride` is the distance of rows as they lie in memory, in elements. A
// transposed left operand lies as depth x rows, a transposed right one as columns x depth.
template <class T>
struct ProductOperand {
  const T* data = nullptr;
  std::size_t stride = 0;
  bool is_transposed = false;
};

// Refers to the matrix that a product is written to. It must not overlap the operands.
template <class T>
struct ProductTarget {
  T* data = nullptr;
  std::size_t stride = 0;
};

// Says how sums reach the target. `adds` adds them to its elements; otherwise these are only written. `bias` is null,
// or has a number per column, added last. `relu` then replaces negative numbers by zero and keeps NaN.
template <class T>
struct ProductEnding {
  bool adds = false;
  const T* bias = nullptr;
  bool relu = false;
};

void matrix_product(const ProductShape& shape, const ProductOperand<float>& left, const ProductOperand<float>& right,
                    const ProductTarget<float>& target, const ProductEnding<float>& ending = {});

// Does the same for f64. It is not tuned: it serves checks of gradients.
void matrix_product(const ProductShape& shape, const ProductOperand<double>& left, const ProductOperand<double>& right,
                    const ProductTarget<double>& target, const ProductEnding<double>& ending = {});

// Returns the name of the vector instructions in use, such as "AVX3".
const char* product_target_name();

}  // namespace lockstep::train::compute
