// SPDX-License-Identifier: Apache-2.0
// Provides sums, products, minima and maxima of integers. Sums and products wrap around. In two's complement their bits
// do not depend on the sign. So signed integers use the kernels of unsigned ones, for which wrapping is defined.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "collectives/kernels/integer_kernels.cpp"
#include "collectives/kernels/vectors.hpp"
// This include must follow vectors.hpp, which chooses the targets.
#include <hwy/foreach_target.h>
// This one must follow foreach_target.h, which includes this file again for each target.
#include <hwy/highway.h>

#include <type_traits>

#include "collectives/kernels/formats-inl.hpp"
#include "collectives/kernels/loops-inl.hpp"
#include "collectives/kernels/table.hpp"

HWY_BEFORE_NAMESPACE();
namespace lockstep::HWY_NAMESPACE {
namespace {

struct IntegerOp {
  static constexpr bool is_light = false;
  template <class V>
  HWY_INLINE V finish(V a) const {
    return a;
  }
};

struct IntegerSum : IntegerOp {
  static constexpr bool is_light = true;
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::Add(a, b);
  }
};

// Multiplies bytes. No processor has an instruction for it, so even and odd bytes are multiplied as 16-bit numbers.
template <class V>
HWY_INLINE V byte_products(V a, V b) {
  const hn::DFromV<V> bytes;
  const hn::Repartition<std::uint16_t, hn::DFromV<V>> words;
  const auto a16 = hn::BitCast(words, a);
  const auto b16 = hn::BitCast(words, b);
  const auto even = hn::And(hn::Mul(a16, b16), hn::Set(words, 0x00ff));
  const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a16), hn::ShiftRight<8>(b16)));
  return hn::BitCast(bytes, hn::Or(even, odd));
}

struct IntegerProd : IntegerOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    if constexpr (HWY_TARGET != HWY_SCALAR && sizeof(hn::TFromV<V>) == 1)
      return byte_products(a, b);
    else
      return hn::Mul(a, b);
  }
};

struct IntegerMin : IntegerOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::Min(a, b);
  }
};

struct IntegerMax : IntegerOp {
  template <class V>
  HWY_INLINE V apply(V a, V b) const {
    return hn::Max(a, b);
  }
};

template <class T>
Kernel kernel_for(ReduceOp op) {
  using Unsigned = std::make_unsigned_t<T>;
  switch (op) {
    case ReduceOp::sum:
      return kernel_of<Plain<Unsigned>, IntegerSum>();
    case ReduceOp::prod:
      return kernel_of<Plain<Unsigned>, IntegerProd>();
    case ReduceOp::min:
      return kernel_of<Plain<T>, IntegerMin>();
    case ReduceOp::max:
      return kernel_of<Plain<T>, IntegerMax>();
    default:
      return {};
  }
}

Kernel choose_integer(DataType type, ReduceOp op) {
  switch (type) {
    case DataType::i8:
      return kernel_for<std::int8_t>(op);
    case DataType::i16:
      return kernel_for<std::int16_t>(op);
    case DataType::i32:
      return kernel_for<std::int32_t>(op);
    case DataType::i64:
      return kernel_for<std::int64_t>(op);
    case DataType::u8:
      return kernel_for<std::uint8_t>(op);
    case DataType::u16:
      return kernel_for<std::uint16_t>(op);
    case DataType::u32:
      return kernel_for<std::uint32_t>(op);
    case DataType::u64:
      return kernel_for<std::uint64_t>(op);
    default:
      return {};
  }
}

}  // namespace
}  // namespace lockstep::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lockstep {

HWY_EXPORT(choose_integer);
Kernel integer_kernel(DataType type, ReduceOp op) { return HWY_DYNAMIC_DISPATCH(choose_integer)(type, op); }

}  // namespace lockstep
#endif
