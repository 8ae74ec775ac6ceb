// SPDX-License-Identifier: Apache-2.0
// Loads and stores the first elements of a vector. Highway's masked ones touch whole vectors of processors without
// masks, and so memory behind an array.
#if defined(LOCKSTEP_TRAIN_PART_VECTORS) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_TRAIN_PART_VECTORS
#undef LOCKSTEP_TRAIN_PART_VECTORS
#else
#define LOCKSTEP_TRAIN_PART_VECTORS
#endif

#include <hwy/highway.h>

#include <cstddef>

HWY_BEFORE_NAMESPACE();
namespace lockstep::train::compute::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Returns the first `count` elements, and zeros behind them. `count` is smaller than a vector, or as large.
template <class D>
HWY_INLINE hn::Vec<D> load_part(D d, const hn::TFromD<D>* from, std::size_t count) {
#if HWY_TARGET <= HWY_AVX2  // Newer sets have smaller numbers.
  return hn::MaskedLoad(hn::FirstN(d, count), d, from);
#else
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)] = {};
  for (std::size_t i = 0; i < count; ++i) lanes[i] = from[i];
  return hn::Load(d, lanes);
#endif
}

// Stores the first `count` elements, and touches no memory behind them.
template <class D>
HWY_INLINE void store_part(hn::Vec<D> vector, D d, hn::TFromD<D>* to, std::size_t count) {
#if HWY_TARGET <= HWY_AVX2
  hn::BlendedStore(vector, hn::FirstN(d, count), d, to);
#else
  HWY_ALIGN hn::TFromD<D> lanes[hn::MaxLanes(d)];
  hn::Store(vector, d, lanes);
  for (std::size_t i = 0; i < count; ++i) to[i] = lanes[i];
#endif
}

}  // namespace lockstep::train::compute::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
