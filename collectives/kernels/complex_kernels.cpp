// SPDX-License-Identifier: Apache-2.0
// Provides products of complex numbers: (a + bi)(c + di) = (ac - bd) + (ad + bc)i. Each of the four products and two
// sums is rounded by itself. So this file must be compiled without contraction to fused multiply-add.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/complex_kernels.cpp"
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

#if HWY_TARGET == HWY_SCALAR

template <class T>
struct Complex {
  T re;
  T im;
};

template <class T>
struct ComplexProd {
  static constexpr bool is_light = false;
  using V = Complex<T>;
  static V apply(V a, V b) { return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re}; }
  static V finish(V a) {
    using Vec = hn::Vec<hn::ScalableTag<T>>;
    return {with_quiet_nan(Vec(a.re)).raw, with_quiet_nan(Vec(a.im)).raw};
  }
};

template <class T>
Kernel product_of() {
  return kernel_of<Values<Complex<T>>, ComplexProd<T>>();
}

#else

// Even lanes hold real parts, odd lanes imaginary parts.
struct ComplexProd : FloatOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    const auto by_real = hn::Mul(hn::DupEven(a), b);
    const auto by_imaginary = hn::Mul(hn::DupOdd(a), hn::Reverse2(hn::DFromV<V>(), b));
    return hn::OddEven(hn::Add(by_real, by_imaginary), hn::Sub(by_real, by_imaginary));
  }
};

template <class T>
Kernel product_of() {
  return kernel_of<Plain<T>, ComplexProd, 2>();
}

#endif

Kernel choose_product(DataType type, ReduceOp op) {
  if (op != ReduceOp::prod) return {};
  if (type == DataType::c64) return product_of<float>();
  if (type == DataType::c128) return product_of<double>();
  return {};
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(choose_product);
Kernel product_kernel(DataType type, ReduceOp op) { return HWY_DYNAMIC_DISPATCH(choose_product)(type, op); }

}  // namespace lockstep
#endif
