// SPDX-License-Identifier: Apache-2.0
// Multiplies matrices block by block. The right operand is read where it lies if few rows use it or its rows are near
// each other; otherwise it is packed into panels.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/train/compute/matrix_product.cpp"
#include "runtime/train/compute/vectors.hpp"
// This include must follow vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// This one must follow foreach_target.h, which includes this file again for each target.
#include <hwy/highway.h>

#include <algorithm>

#include "runtime/train/compute/matrix_product.hpp"
#include "runtime/train/compute/product_blocks-inl.hpp"
#include "runtime/train/compute/scratch.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::train::compute::HWY_NAMESPACE {
namespace {

// Gives the columns of the target that are computed as rows before they are transposed.
constexpr std::size_t transposed_rows = 112;

template <class T>
LeftRows<T> left_rows(const ProductOperand<T>& left, const DepthRun& run) {
  return {left.data, left.stride, left.is_transposed, &run, 1};
}

// Returns where a block of depth lies in the left operand.
template <class T>
DepthRun run_of(const ProductOperand<T>& left, BlockRange depth) {
  return {left.is_transposed ? depth.first * left.stride : depth.first, depth.length};
}

template <class T>
void multiply_plain(const ProductShape& shape, const ProductOperand<T>& left, const ProductOperand<T>& right,
                    const ProductTarget<T>& target, const ProductEnding<T>& ending) {
  const bool is_packed = shape.rows > 256 && right.stride > 256;
  T* const packed =
      scratch<T>(ScratchUse::right_panels, packed_size<T>(depth_block, std::min(column_block, shape.columns)));
  for (std::size_t j = 0; j < shape.columns; j += column_block) {
    const BlockRange columns{j, std::min(column_block, shape.columns - j)};
    std::size_t k = 0;
    do {  // also once for a depth of zero
      const BlockRange depth{k, std::min(depth_block, shape.depth - k)};
      const RightBlock<T> block = prepare_right(right, depth, columns, is_packed, packed);
      const DepthRun run = run_of(left, depth);
      const bool is_last = k + depth.length == shape.depth;
      multiply_rows(left_rows(left, run), shape.rows, block, {target.data + j, target.stride},
                    ending_of_block(ending, k == 0, is_last, j));
      k += depth.length;
    } while (k < shape.depth);
  }
}

// Adds the bias of each row, and applies relu.
template <class T>
void finish_transposed(T* sums, std::size_t rows, std::size_t columns, const ProductEnding<T>& ending) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; j += lanes) {  // the stride is a whole number of vectors
      T* const at = sums + i * ((columns + lanes - 1) / lanes * lanes) + j;
      auto sum = hn::Load(d, at);
      if (ending.bias != nullptr) sum = hn::Add(sum, hn::Set(d, ending.bias[i]));
      if (ending.relu) sum = hn::IfThenZeroElse(hn::Le(sum, hn::Zero(d)), sum);
      hn::Store(sum, d, at);
    }
  }
}

// Computes right^T * left^T, some rows at a time, and transposes these. So a transposed right operand with many columns
// is read where it lies.
template <class T>
void multiply_swapped(const ProductShape& shape, const ProductOperand<T>& left, const ProductOperand<T>& right,
                      const ProductTarget<T>& target, const ProductEnding<T>& ending) {
  const std::size_t lanes = hn::Lanes(hn::ScalableTag<T>());
  const std::size_t stride = (shape.rows + lanes - 1) / lanes * lanes;
  const std::size_t padded = packed_size<T>(1, shape.rows);
  T* const packed = scratch<T>(ScratchUse::right_panels, padded * shape.depth);
  T* const sums = scratch<T>(ScratchUse::transposed_result, transposed_rows * stride);
  const ProductOperand<T> other{left.data, left.stride, !left.is_transposed};
  for (std::size_t k = 0; k < shape.depth; k += depth_block)
    pack_right(other, {k, std::min(depth_block, shape.depth - k)}, {0, shape.rows}, packed + k * padded);
  for (std::size_t j = 0; j < shape.columns; j += transposed_rows) {
    const std::size_t rows = std::min(transposed_rows, shape.columns - j);
    if (ending.adds) transpose(target.data + j, target.stride, shape.rows, rows, sums, stride);
    for (std::size_t k = 0; k < shape.depth; k += depth_block) {
      const std::size_t length = std::min(depth_block, shape.depth - k);
      const RightBlock<T> block{.packed = packed + k * padded, .depth = length, .columns = shape.rows};
      const DepthRun run{j * right.stride + k, length};
      multiply_rows<T>({right.data, right.stride, false, &run, 1}, rows, block, {sums, stride},
                       {.adds = ending.adds || k > 0});
    }
    if (ending.bias != nullptr || ending.relu)
      finish_transposed<T>(sums, rows, shape.rows,
                           {false, ending.bias == nullptr ? nullptr : ending.bias + j, ending.relu});
    transpose(sums, stride, rows, shape.rows, target.data + j, target.stride);
  }
}

// Returns true if transposing the result moves less than transposing the right operand.
bool is_better_swapped(const ProductShape& shape, bool right_is_transposed) {
  constexpr std::size_t max_packed = std::size_t{4} << 20U;
  return right_is_transposed && shape.depth > 0 && shape.rows >= 4 && shape.rows <= column_block &&
         shape.rows * shape.depth <= max_packed &&
         shape.rows * (shape.columns + shape.depth) < shape.columns * shape.depth;
}

template <class T>
void multiply(const ProductShape& shape, const ProductOperand<T>& left, const ProductOperand<T>& right,
              const ProductTarget<T>& target, const ProductEnding<T>& ending) {
  if (shape.rows == 0 || shape.columns == 0) return;
  if (is_better_swapped(shape, right.is_transposed))
    multiply_swapped(shape, left, right, target, ending);
  else
    multiply_plain(shape, left, right, target, ending);
}

void multiply_floats(const ProductShape& shape, const ProductOperand<float>& left, const ProductOperand<float>& right,
                     const ProductTarget<float>& target, const ProductEnding<float>& ending) {
  multiply(shape, left, right, target, ending);
}

void multiply_doubles(const ProductShape& shape, const ProductOperand<double>& left,
                      const ProductOperand<double>& right, const ProductTarget<double>& target,
                      const ProductEnding<double>& ending) {
  multiply(shape, left, right, target, ending);
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace lockstep::train::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::train::compute {

HWY_EXPORT(multiply_floats);
HWY_EXPORT(multiply_doubles);
HWY_EXPORT(target_name);

void matrix_product(const ProductShape& shape, const ProductOperand<float>& left, const ProductOperand<float>& right,
                    const ProductTarget<float>& target, const ProductEnding<float>& ending) {
  HWY_DYNAMIC_DISPATCH(multiply_floats)(shape, left, right, target, ending);
}

void matrix_product(const ProductShape& shape, const ProductOperand<double>& left, const ProductOperand<double>& right,
                    const ProductTarget<double>& target, const ProductEnding<double>& ending) {
  HWY_DYNAMIC_DISPATCH(multiply_doubles)(shape, left, right, target, ending);
}

const char* product_target_name() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace lockstep::train::compute
#endif
