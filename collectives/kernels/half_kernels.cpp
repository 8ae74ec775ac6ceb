// SPDX-License-Identifier: Apache-2.0
// Provides the kernels of 16-bit floats. These are widened when loaded, combined as 32-bit floats, and rounded once
// when stored, for any number of sources.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/half_kernels.cpp"
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
Kernel short_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::sum:
      return kernel_of<Float16Format<T>, FloatSum>();
    case ReduceOp::prod:
      return kernel_of<Float16Format<T>, FloatProd>();
    case ReduceOp::min:
      return kernel_of<Float16Format<T>, FloatMin>();
    case ReduceOp::max:
      return kernel_of<Float16Format<T>, FloatMax>();
    default:
      return {};
  }
}

Kernel choose_half(DataType type, ReduceOp op) {
  if (type == DataType::f16) return short_kernel<f16>(op);
  if (type == DataType::bf16) return short_kernel<bf16>(op);
  return {};
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(choose_half);
Kernel half_kernel(DataType type, ReduceOp op) { return HWY_DYNAMIC_DISPATCH(choose_half)(type, op); }

}  // namespace lockstep
#endif
