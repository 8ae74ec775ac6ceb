// SPDX-License-Identifier: Apache-2.0
// Passes over elements a vector at a time. What fills no vector goes through masked vectors, or one by one through the
// same roundings.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "runtime/train/compute/element_wise.cpp"
#include "runtime/train/compute/vectors.hpp"
// This include must follow vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// This one must follow foreach_target.h, which includes this file again for each target.
#include <hwy/highway.h>

#include <algorithm>

#include "runtime/train/compute/element_wise.hpp"
#include "runtime/train/compute/part_vectors-inl.hpp"

#ifndef LOCKSTEP_TRAIN_ELEMENT_FUNCTIONS
#define LOCKSTEP_TRAIN_ELEMENT_FUNCTIONS
namespace lockstep::train::compute {

// Holds the functions for one type and one set of vector instructions.
template <class T>
struct ElementFunctions {
  void (*relu)(const T*, T*, std::size_t);
  void (*relu_gradient)(const T*, const T*, T*, std::size_t);
  void (*column_sums)(const T*, std::size_t, std::size_t, T*);
};

}  // namespace lockstep::train::compute
#endif

HWY_BEFORE_NAMESPACE();
namespace lockstep::train::compute::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Gives the rows whose sum starts from zero. It decides about bits.
constexpr std::size_t row_block = 256;

template <class V>
HWY_INLINE V without_negative(V value) {
  return hn::IfThenZeroElse(hn::Le(value, hn::Zero(hn::DFromV<V>())), value);
}

template <class T>
void relu_all(const T* from, T* to, std::size_t count) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) hn::StoreU(without_negative(hn::LoadU(d, from + i)), d, to + i);
  if (i == count) return;
  store_part(without_negative(load_part(d, from + i, count - i)), d, to + i, count - i);
}

template <class T>
void relu_gradients(const T* output, const T* output_gradient, T* input_gradient, std::size_t count) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto is_above = hn::Lt(hn::Zero(d), hn::LoadU(d, output + i));
    hn::StoreU(hn::IfThenElseZero(is_above, hn::LoadU(d, output_gradient + i)), d, input_gradient + i);
  }
  for (; i < count; ++i) input_gradient[i] = output[i] > T{0} ? output_gradient[i] : T{0};
}

// Sums one block of rows in four vectors of columns.
template <class T>
void sum_block(const T* values, std::size_t rows, std::size_t columns, T* sums, bool adds) {
  const hn::ScalableTag<T> d;
  const std::size_t lanes = hn::Lanes(d);
  std::size_t j = 0;
  for (; j + 4 * lanes <= columns; j += 4 * lanes) {
    auto sum0 = hn::Zero(d), sum1 = sum0, sum2 = sum0, sum3 = sum0;
    const T* from = values + j;
    for (std::size_t row = 0; row < rows; ++row, from += columns) {
      sum0 = hn::Add(sum0, hn::LoadU(d, from));
      sum1 = hn::Add(sum1, hn::LoadU(d, from + lanes));
      sum2 = hn::Add(sum2, hn::LoadU(d, from + 2 * lanes));
      sum3 = hn::Add(sum3, hn::LoadU(d, from + 3 * lanes));
    }
    T* const to = sums + j;
    hn::StoreU(adds ? hn::Add(hn::LoadU(d, to), sum0) : sum0, d, to);
    hn::StoreU(adds ? hn::Add(hn::LoadU(d, to + lanes), sum1) : sum1, d, to + lanes);
    hn::StoreU(adds ? hn::Add(hn::LoadU(d, to + 2 * lanes), sum2) : sum2, d, to + 2 * lanes);
    hn::StoreU(adds ? hn::Add(hn::LoadU(d, to + 3 * lanes), sum3) : sum3, d, to + 3 * lanes);
  }
  for (; j < columns; j += lanes) {
    const std::size_t used = std::min(lanes, columns - j);
    auto sum = hn::Zero(d);
    const T* from = values + j;
    for (std::size_t row = 0; row < rows; ++row, from += columns) sum = hn::Add(sum, load_part(d, from, used));
    if (adds) sum = hn::Add(load_part(d, sums + j, used), sum);
    store_part(sum, d, sums + j, used);
  }
}

template <class T>
void sum_columns(const T* values, std::size_t rows, std::size_t columns, T* sums) {
  std::size_t row = 0;
  do {  // also once for no rows
    const std::size_t block = std::min(row_block, rows - row);
    sum_block(values + row * columns, block, columns, sums, row > 0);
    row += block;
  } while (row < rows);
}

ElementFunctions<float> float_functions() { return {relu_all<float>, relu_gradients<float>, sum_columns<float>}; }
ElementFunctions<double> double_functions() { return {relu_all<double>, relu_gradients<double>, sum_columns<double>}; }

}  // namespace
}  // namespace lockstep::train::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep::train::compute {

HWY_EXPORT(float_functions);
HWY_EXPORT(double_functions);

namespace {

ElementFunctions<float> functions(float /*for its type*/) { return HWY_DYNAMIC_DISPATCH(float_functions)(); }
ElementFunctions<double> functions(double /*for its type*/) { return HWY_DYNAMIC_DISPATCH(double_functions)(); }

}  // namespace

void relu(const float* from, float* to, std::size_t count) { functions(float{}).relu(from, to, count); }

void relu(const double* from, double* to, std::size_t count) { functions(double{}).relu(from, to, count); }
void relu_gradient(const float* output, const float* output_gradient, float* input_gradient, std::size_t count) {
  functions(float{}).relu_gradient(output, output_gradient, input_gradient, count);
}

void relu_gradient(const double* output, const double* output_gradient, double* input_gradient, std::size_t count) {
  functions(double{}).relu_gradient(output, output_gradient, input_gradient, count);
}

void column_sums(const float* values, std::size_t rows, std::size_t columns, float* sums) {
  functions(float{}).column_sums(values, rows, columns, sums);
}

void column_sums(const double* values, std::size_t rows, std::size_t columns, double* sums) {
  functions(double{}).column_sums(values, rows, columns, sums);
}

}  // namespace lockstep::train::compute
#endif
