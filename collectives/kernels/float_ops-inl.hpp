// SPDX-License-Identifier: Apache-2.0
// Defines the operations on two vectors of floats: f32, f64, and 16-bit floats while they are 32 bits wide. Minimum and
// maximum use only comparisons and bits, because processors' own instructions disagree about NaN and zero.
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

// Returns the only NaN that results hold. Otherwise the NaN of two NaN operands would depend on their order.
template <class D>
HWY_INLINE hn::Vec<D> quiet_nan(D d) {
  if constexpr (sizeof(hn::TFromD<D>) == 4)
    return hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), std::uint32_t{0x7fc00000}));
  else
    return hn::BitCast(d, hn::Set(hn::RebindToUnsigned<D>(), std::uint64_t{0x7ff8000000000000}));
}

// Returns the vector with every NaN replaced by quiet_nan().
template <class V>
HWY_INLINE V with_quiet_nan(V a) {
  return hn::IfThenElse(hn::Eq(a, a), a, quiet_nan(hn::DFromV<V>()));
}

// Cleans NaN at the end only, which is enough: NaN stays NaN through all operations. `is_light` marks operations that
// take no longer than their loads.
struct FloatOp {
  static constexpr bool is_light = false;
  template <class V>
  HWY_INLINE V finish(V a) const {
    return with_quiet_nan(a);
  }
};

// Adds.
struct FloatSum : FloatOp {
  static constexpr bool is_light = true;
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::Add(a, b);
  }
};

// Multiplies.
struct FloatProd : FloatOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::Mul(a, b);
  }
};

// Returns the minimum: NaN if an operand is NaN, and -0 of the two zeros. Of equal numbers only zeros differ in their
// bits. There "or" gives -0 if one of them is -0, and "and" gives +0 if one is +0.
struct FloatMin : FloatOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    const auto equal = hn::IfThenElse(hn::Eq(a, b), hn::Or(a, b), quiet_nan(hn::DFromV<V>()));
    return hn::IfThenElse(hn::Lt(a, b), a, hn::IfThenElse(hn::Lt(b, a), b, equal));
  }
};

// Returns the maximum: NaN if an operand is NaN, and +0 of the two zeros.
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
