// SPDX-License-Identifier: Apache-2.0
// Provides the division after a sum (avg) and the product before it (premul_sum) for floats and complex numbers. Each
// number is divided or multiplied by the same one, in the loop of the reductions with a single source.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/float_maps.cpp"
#include "collectives/kernels/vectors.hpp"
// This include must follow vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// This one must follow foreach_target.h, which includes this file again for each target.
#include <hwy/highway.h>

#include "collectives/kernels/float_ops-inl.hpp"
#include "collectives/kernels/formats-inl.hpp"
#include "collectives/kernels/loops-inl.hpp"
#include "collectives/kernels/table.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

struct MapOp {
  template <class V>
  HWY_INLINE V apply(V a, V /*never: there is one source*/) const {
    return a;
  }
};

template <class T>
struct DividedBy : MapOp {
  explicit DividedBy(std::int64_t by) : divisor(static_cast<T>(by)) {}
  T divisor;
  template <class V>
  HWY_INLINE V finish(V a) const {
    return with_quiet_nan(hn::Div(a, hn::Set(hn::DFromV<V>(), divisor)));
  }
};

template <class T>
struct MultipliedBy : MapOp {
  explicit MultipliedBy(double by) : factor(static_cast<T>(by)) {}
  T factor;
  template <class V>
  HWY_INLINE V finish(V a) const {
    return with_quiet_nan(hn::Mul(a, hn::Set(hn::DFromV<V>(), factor)));
  }
};

template <class T, class Format, std::size_t lanes>
void divide_floats(void* target, const void* source, std::size_t count, std::int64_t divisor) {
  constexpr std::size_t size = Format::size * lanes;
  const LoopCall call{static_cast<std::uint8_t*>(target), &source, 1, count * size, size};
  Loop<Format, DividedBy<T>>::template run<1>(DividedBy<T>(divisor), call);
}

template <class T, class Format, std::size_t lanes>
void scale_floats(void* target, const void* source, std::size_t count, double factor) {
  constexpr std::size_t size = Format::size * lanes;
  const LoopCall call{static_cast<std::uint8_t*>(target), &source, 1, count * size, size};
  Loop<Format, MultipliedBy<T>>::template run<1>(MultipliedBy<T>(factor), call);
}

template <class T, class Format, std::size_t lanes = 1>
Maps maps_of() {
  return {&divide_floats<T, Format, lanes>, &scale_floats<T, Format, lanes>};
}

Maps choose_maps(DataType type) {
  switch (type) {
    case DataType::f16:
      return maps_of<float, Float16Format<f16>>();
    case DataType::bf16:
      return maps_of<float, Float16Format<bf16>>();
    case DataType::f32:
      return maps_of<float, Plain<float>>();
    case DataType::f64:
      return maps_of<double, Plain<double>>();
    case DataType::c64:
      return maps_of<float, Plain<float>, 2>();
    case DataType::c128:
      return maps_of<double, Plain<double>, 2>();
    default:
      return {};
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(choose_maps);
Maps float_maps(DataType type) { return HWY_DYNAMIC_DISPATCH(choose_maps)(type); }

}  // namespace lockstep
#endif
