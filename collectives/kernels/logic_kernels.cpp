// SPDX-License-Identifier: Apache-2.0
// Provides logical and bitwise operations of integers and bool. The sign does not matter to them, so there is one
// kernel for each width. Bitwise operations on bool are the logical ones: a byte that is not 0 is true.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/logic_kernels.cpp"
#include "collectives/kernels/vectors.hpp"
// This include must follow vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// This one must follow foreach_target.h, which includes this file again for each target.
#include <hwy/highway.h>

#include "collectives/kernels/formats-inl.hpp"
#include "collectives/kernels/loops-inl.hpp"
#include "collectives/kernels/table.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

struct BitOp {
  static constexpr bool is_light = false;
  template <class V>
  HWY_INLINE V finish(V a) const {
    return a;
  }
};

struct BitAnd : BitOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::And(a, b);
  }
};

struct BitOr : BitOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::Or(a, b);
  }
};

struct BitXor : BitOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::Xor(a, b);
  }
};

// Returns 1 in lanes that are 0, and 0 elsewhere.
template <class V>
HWY_INLINE V negated(V a) {
  const hn::DFromV<V> d;
  return hn::IfThenElseZero(hn::Eq(a, hn::Zero(d)), hn::Set(d, 1));
}

struct LogicalAnd : BitOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return negated(hn::Or(negated(a), negated(b)));
  }
};

struct LogicalOr : BitOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::Xor(negated(hn::Or(a, b)), hn::Set(hn::DFromV<V>(), 1));
  }
};

struct LogicalXor : BitOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::Xor(negated(a), negated(b));
  }
};

template <class T>
Kernel logical_kernel(ReduceOp op) {
  switch (op) {
    case ReduceOp::logical_and:
      return kernel_of<Plain<T>, LogicalAnd>();
    case ReduceOp::logical_or:
      return kernel_of<Plain<T>, LogicalOr>();
    case ReduceOp::logical_xor:
      return kernel_of<Plain<T>, LogicalXor>();
    default:
      return {};
  }
}

// Returns the kernel of an operation. Bitwise operations do not depend on the width of numbers, so all types share the
// loops of bytes.
template <class T>
Kernel kernel_for(ReduceOp op) {
  using ByteFormat = Plain<std::uint8_t>;
  switch (op) {
    case ReduceOp::bit_and:
      return kernel_of<ByteFormat, BitAnd, sizeof(T)>();
    case ReduceOp::bit_or:
      return kernel_of<ByteFormat, BitOr, sizeof(T)>();
    case ReduceOp::bit_xor:
      return kernel_of<ByteFormat, BitXor, sizeof(T)>();
    default:
      return logical_kernel<T>(op);
  }
}

ReduceOp as_logical(ReduceOp op) {
  if (op == ReduceOp::bit_and) return ReduceOp::logical_and;
  if (op == ReduceOp::bit_or) return ReduceOp::logical_or;
  if (op == ReduceOp::bit_xor) return ReduceOp::logical_xor;
  return op;
}

Kernel choose_logic(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::i8:
    case DataType::u8:
      return kernel_for<std::uint8_t>(op);
    case DataType::i16:
    case DataType::u16:
      return kernel_for<std::uint16_t>(op);
    case DataType::i32:
    case DataType::u32:
      return kernel_for<std::uint32_t>(op);
    case DataType::i64:
    case DataType::u64:
      return kernel_for<std::uint64_t>(op);
    case DataType::boolean:
      return logical_kernel<std::uint8_t>(as_logical(op));
    default:
      return {};
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(choose_logic);
Kernel logic_kernel(DataType type, ReduceOp op) { return HWY_DYNAMIC_DISPATCH(choose_logic)(type, op); }

}  // namespace lockstep
#endif
