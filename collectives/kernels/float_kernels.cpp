// SPDX-License-Identifier: Apache-2.0
// Provides the kernels of f32 and f64, and the sums of complex numbers, which are sums of twice as many floats.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/float_kernels.cpp"
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

template <class T>
Kernel real_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return kernel_of<Plain<T>, FloatSum>();
    case ReduceOp::prod:
      return kernel_of<Plain<T>, FloatProd>();
    case ReduceOp::min:
      return kernel_of<Plain<T>, FloatMin>();
    case ReduceOp::max:
      return kernel_of<Plain<T>, FloatMax>();
    default:
      return {};
  }
}

Kernel choose_float(DataType type, ReduceOp op) {
  if (type == DataType::f32) return real_kernel<float>(op);
  if (type == DataType::f64) return real_kernel<double>(op);
  if (op != ReduceOp::sum) return {};
  if (type == DataType::c64) return kernel_of<Plain<float>, FloatSum, 2>();
  if (type == DataType::c128) return kernel_of<Plain<double>, FloatSum, 2>();
  return {};
}

const char* target_name() { return hwy::TargetName(HWY_TARGET); }

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(choose_float);
HWY_EXPORT(target_name);

Kernel float_kernel(DataType type, ReduceOp op) { return HWY_DYNAMIC_DISPATCH(choose_float)(type, op); }
const char* vector_target() { return HWY_DYNAMIC_DISPATCH(target_name)(); }

}  // namespace lockstep
#endif
