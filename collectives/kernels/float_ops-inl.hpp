// SPDX-License-Identifier: Apache-2.0
// What is done with two vectors of floats: f32, f64, and the 16-bit ones while they are 32 bits wide. Only
// comparisons and bits decide in min and max, for the processors' own instructions disagree about NaN and zero.
#if defined(LOCKSTEP_KERNELS_FLOAT_OPS) == defined(HWY_TARGET_TOGGLE)
#ifdef LOCKSTEP_KERNELS_FLOAT_OPS
#undef LOCKSTEP_KERNELS_FLOAT_OPS
#else
#define LOCKSTEP_KERNELS_FLOAT_OPS
#endif

#include <hwy/highway.h>

#include <bit>
#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The one NaN that results hold: which of two NaN a processor would hand on depends on the order of operands.
template <class D>
HWY_INLINE hn::Vec<D> quiet_nan(D d) {
  if constexpr (sizeof(hn::TFromD<D>) == 4)
    return hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), std::uint32_t{0x7fc00000}));
  else
    return hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), std::uint64_t{0x7ff8000000000000}));
}

template <class V>
HWY_INLINE V with_quiet_nan(V a) {
  return hn::IfThenElse(hn::Eq(a, a), a, quiet_nan(hn::DFromV<V>()));
}

// NaN stays NaN through everything that follows, so it is enough to look at the end.
struct FloatOp {
  static constexpr bool is_light = false;
  template <class V>
  HWY_INLINE V finish(V a) const {
    return with_quiet_nan(a);
  }
};

struct FloatSum : FloatOp {
  static constexpr bool is_light = true;
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::Add(a, b);
  }
};

struct FloatProd : FloatOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::Mul(a, b);
  }
};

// Of equal numbers only zeros differ in their bits: "or" gives -0 where one of them is, "and" gives +0.
struct FloatMin : FloatOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    const auto equal = hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), quiet_nan(hn::DFromV<V>()));
    return hn::IfThenElse(hn::Lt(a, b), a, hn::IfThenElse(hn::Lt(b, a), b, equal));
  }
};

struct FloatMax : FloatOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    const auto equal = hn::IfThenElse(hn::Eq(a, b), hn::And(a, b), quiet_nan(hn::DFromV<V>()));
    return hn::IfThenElse(hn::Lt(b, a), a, hn::IfThenElse(hn::Lt(a, b), b, equal));
  }
};

}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
