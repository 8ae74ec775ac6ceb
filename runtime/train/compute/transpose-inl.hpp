// SPDX-License-Identifier: Apache-2.0
// Transposes matrices in blocks of one vector of 128 bits by as many rows, which every processor has.
#if defined(LOCKSTEP_TRAIN_TRANSPOSE) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_TRAIN_TRANSPOSE
#undef LOCKSTEP_TRAIN_TRANSPOSE
#else
#define LOCKSTEP_TRAIN_TRANSPOSE
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace lockstep::train::compute::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET != HWY_SCALAR
template <class T>
inline constexpr std::size_t transposed_block = 16 / sizeof(T);

// Transposes four rows of four numbers.
HWY_INLINE void transpose_block(const float* from, std::size_t from_stride, float* to, std::size_t to_stride) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> pairs;
  const auto row0 = hn::LoadU(d, from);
  const auto row1 = hn::LoadU(d, from + from_stride);
  const auto row2 = hn::LoadU(d, from + 2 * from_stride);
  const auto row3 = hn::LoadU(d, from + 3 * from_stride);
  const auto low01 = hn::BitCast(pairs, hn::InterleaveLower(d, row0, row1));
  const auto low23 = hn::BitCast(pairs, hn::InterleaveLower(d, row2, row3));
  const auto high01 = hn::BitCast(pairs, hn::InterleaveUpper(d, row0, row1));
  const auto high23 = hn::BitCast(pairs, hn::InterleaveUpper(d, row2, row3));
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, low01, low23)), d, to);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, low01, low23)), d, to + to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, high01, high23)), d, to + 2 * to_stride);
  hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, high01, high23)), d, to + 3 * to_stride);
}

// Transposes two rows of two numbers.
HWY_INLINE void transpose_block(const double* from, std::size_t from_stride, double* to, std::size_t to_stride) {
  const hn::FixedTag<double, 2> d;
  const auto row0 = hn::LoadU(d, from);
  const auto row1 = hn::LoadU(d, from + from_stride);
  hn::StoreU(hn::InterleaveLower(d, row0, row1), d, to);
  hn::StoreU(hn::InterleaveUpper(d, row0, row1), d, to + to_stride);
}
#else
template <class T>
inline constexpr std::size_t transposed_block = 1;

template <class T>
void transpose_block(const T* from, std::size_t /*from_stride*/, T* to, std::size_t /*to_stride*/) {
  *to = *from;
}
#endif

// Writes the matrix at `from`, rows x columns, to `to` as columns x rows.
template <class T>
HWY_INLINE void transpose(const T* from, std::size_t from_stride, std::size_t rows, std::size_t columns, T* to,
                          std::size_t to_stride) {
  constexpr std::size_t size = transposed_block<T>;
  const std::size_t whole_rows = rows / size * size;
  const std::size_t whole_columns = columns / size * size;
  for (std::size_t i = 0; i < whole_rows; i += size) {
    for (std::size_t j = 0; j < whole_columns; j += size)
      transpose_block(from + i * from_stride + j, from_stride, to + j * to_stride + i, to_stride);
    for (std::size_t j = whole_columns; j < columns; ++j) {
      for (std::size_t e = i; e < i + size; ++e) to[j * to_stride + e] = from[e * from_stride + j];
    }
  }
  for (std::size_t i = whole_rows; i < rows; ++i) {
    for (std::size_t j = 0; j < columns; ++j) to[j * to_stride + i] = from[i * from_stride + j];
  }
}

}  // namespace lockstep::train::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
