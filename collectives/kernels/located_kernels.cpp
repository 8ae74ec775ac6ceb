// SPDX-License-Identifier: Apache-2.0
// Provides minimum and maximum of values that carry an index. Values are compared by integer keys that put floats into
// one total order (-0 below +0, NaN better than all). So every pair has exactly one winner, in any order.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/located_kernels.cpp"
#include "collectives/kernels/vectors.hpp"
// This include must follow vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// This one must follow foreach_target.h, which includes this file again for each target.
#include <hwy/highway.h>

#include <limits>
#include <type_traits>

#include "collectives/kernels/float_ops-inl.hpp"
#include "collectives/kernels/formats-inl.hpp"
#include "collectives/kernels/loops-inl.hpp"
#include "collectives/kernels/table.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

// Returns the keys of values, as integers of the same width. Positive floats are in order as integers; of negative ones
// all bits but the sign are inverted. `best` beats every number's key.
template <class T, class V>
HWY_INLINE auto key_of(V values, [[maybe_unused]] bool greatest) {
  using I = typename Located<T>::Index;
  const hn::ScalableTag<I> ints;
  const auto bits = hn::BitCast(ints, values);
  if constexpr (std::is_integral_v<T>) {
    return bits;
  } else {
    constexpr I least = std::numeric_limits<I>::min();
    constexpr I best = std::numeric_limits<I>::max();
    const auto floats = hn::BitCast(hn::ScalableTag<T>(), values);
    const auto key = hn::Xor(bits, hn::And(hn::BroadcastSignBit(bits), hn::Set(ints, best)));
    const auto number = hn::RebindMask(ints, hn::Eq(floats, floats));
    return hn::IfThenElse(number, key, hn::Set(ints, greatest ? best : least));
  }
}

#if HWY_TARGET == HWY_SCALAR

template <class T, bool greatest>
struct LocatedOp {
  static constexpr bool is_light = false;
  using V = Located<T>;
  static V apply(V a, V b) {
    using Vec = hn::Vec<hn::ScalableTag<T>>;
    const auto key_a = key_of<T>(Vec(a.value), greatest).raw;
    const auto key_b = key_of<T>(Vec(b.value), greatest).raw;
    if (key_a == key_b) return b.index < a.index ? b : a;
    return (greatest ? key_b > key_a : key_b < key_a) ? b : a;
  }
  static V finish(V a) {
    if constexpr (std::is_floating_point_v<T>) a.value = with_quiet_nan(hn::Vec<hn::ScalableTag<T>>(a.value)).raw;
    return a;
  }
};

template <class T, bool greatest>
Kernel located_of() {
  return kernel_of<Values<Located<T>>, LocatedOp<T, greatest>>();
}

#else

// Even lanes hold values, odd lanes indices. Both are copied to their pair of lanes, so the mask is the same for both.
template <class T, bool greatest>
struct LocatedOp {
  static constexpr bool is_light = false;
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    const auto key_a = key_of<T>(hn::DupEven(a), greatest);
    const auto key_b = key_of<T>(hn::DupEven(b), greatest);
    const auto sooner = hn::And(hn::Eq(key_a, key_b), hn::Lt(hn::DupOdd(b), hn::DupOdd(a)));
    const auto better = greatest ? hn::Lt(key_a, key_b) : hn::Lt(key_b, key_a);
    return hn::IfThenElse(hn::Or(better, sooner), b, a);
  }
  template <class V>
  HWY_INLINE V finish(V a) const {
    if constexpr (std::is_integral_v<T>) {
      return a;
    } else {
      const auto values = hn::BitCast(hn::ScalableTag<T>(), a);
      return hn::OddEven(a, hn::BitCast(hn::DFromV<V>(), with_quiet_nan(values)));
    }
  }
};

template <class T, bool greatest>
Kernel located_of() {
  return kernel_of<Plain<typename Located<T>::Index>, LocatedOp<T, greatest>, 2>();
}

#endif

template <class T>
Kernel kernel_for(ReduceOp op) {
  if (op == ReduceOp::min) return located_of<T, false>();
  if (op == ReduceOp::max) return located_of<T, true>();
  return {};
}

Kernel choose_located(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::located_i32:
      return kernel_for<std::int32_t>(op);
    case DataType::located_i64:
      return kernel_for<std::int64_t>(op);
    case DataType::located_f32:
      return kernel_for<float>(op);
    case DataType::located_f64:
      return kernel_for<double>(op);
    default:
      return {};
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(choose_located);
Kernel located_kernel(DataType type, ReduceOp op) { return HWY_DYNAMIC_DISPATCH(choose_located)(type, op); }

}  // namespace lockstep
#endif
