// SPDX-License-Identifier: Apache-2.0
// Holds the arithmetic of reductions, one format per element type. The compilers of GPUs and of the host both take it,
// and results have the same bits on both (docs/reductions.md).
#pragma once

#include <cstdint>
#include <limits>
#include <type_traits>

#include "collectives/gpu/quotients.hpp"
#include "collectives/spec.hpp"

namespace lockstep::gpu {

// True if `a` comes before `b`; -0 comes before +0. Callers handle NaN first.
template <class T>
LOCKSTEP_BOTH bool is_less(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (a == 0 && b == 0) return is_negative(a) && !is_negative(b);
  }
  return a < b;
}

template <class T>
LOCKSTEP_BOTH bool is_nan(T a) {
  return a != a;  // NOLINT(misc-redundant-expression)
}

// Formats say how an element lies in memory (Stored), which type calculates (Wide), and how one becomes the other. This
// one is for integers; sums and products wrap around. Each format may have `by` and `divide` (division of results), and
// `scale` (multiplication of inputs by a factor). A type without them is neither divided nor scaled.
template <class T>
struct IntegerFormat {
  using Stored = T;
  using Wide = T;
  LOCKSTEP_BOTH static Wide load(Stored stored) { return stored; }
  LOCKSTEP_BOTH static Stored store(Wide wide) { return wide; }

  LOCKSTEP_BOTH static Wide combine(ReduceOp op, Wide a, Wide b) {
    const auto left = static_cast<std::uint64_t>(a);
    const auto right = static_cast<std::uint64_t>(b);
    switch (op) {
      case ReduceOp::prod:
        return static_cast<T>(left * right);
      case ReduceOp::min:
        return b < a ? b : a;
      case ReduceOp::max:
        return a < b ? b : a;
      case ReduceOp::logical_and:
        return static_cast<T>(a != 0 && b != 0);
      case ReduceOp::logical_or:
        return static_cast<T>(a != 0 || b != 0);
      case ReduceOp::logical_xor:
        return static_cast<T>((a != 0) != (b != 0));
      case ReduceOp::bit_and:
        return static_cast<T>(left & right);
      case ReduceOp::bit_or:
        return static_cast<T>(left | right);
      case ReduceOp::bit_xor:
        return static_cast<T>(left ^ right);
      default:
        return static_cast<T>(left + right);
    }
  }
  // A divisor of integers is the number itself; quotients are cut off towards zero.
  using Divisor = std::int64_t;
  LOCKSTEP_BOTH static Divisor by(std::int64_t number) { return number; }
  LOCKSTEP_BOTH static Stored divide(Stored value, Divisor divisor, const bool* /*is_right*/ = nullptr) {
    if constexpr (std::is_signed_v<T>)
      return static_cast<T>(static_cast<std::int64_t>(value) / divisor);
    else
      return static_cast<T>(static_cast<std::uint64_t>(value) / static_cast<std::uint64_t>(divisor));
  }
  // Multiplies in double, cuts off towards zero, and keeps the result within the type; NaN becomes 0. The largest
  // 64-bit integer is not a double, so the comparison is with the power of two behind it.
  LOCKSTEP_BOTH static Stored scale(Stored value, double factor) {
    constexpr T most = std::is_signed_v<T> ? static_cast<T>((std::uint64_t{1} << (8 * sizeof(T) - 1)) - 1)
                                           : static_cast<T>(~std::uint64_t{0});
    constexpr T least = std::is_signed_v<T> ? static_cast<T>(-most - 1) : T{0};
    const double product = times(static_cast<double>(value), factor);
    if (is_nan(product)) return 0;
    if (product >= 2.0 * static_cast<double>(std::uint64_t{1} << (8 * sizeof(T) - 1)) * (std::is_signed_v<T> ? 0.5 : 1))
      return most;
    if (product <= static_cast<double>(least)) return least;
    return static_cast<T>(product);
  }
};

// Holds a boolean in one byte; any value but 0 is true.
struct BooleanFormat {
  using Stored = std::uint8_t;
  using Wide = std::uint8_t;
  LOCKSTEP_BOTH static Wide load(Stored stored) { return stored; }
  LOCKSTEP_BOTH static Stored store(Wide wide) { return wide; }
  LOCKSTEP_BOTH static Wide combine(ReduceOp op, Wide a, Wide b) {
    const bool left = a != 0;
    const bool right = b != 0;
    bool result = left != right;
    if (op == ReduceOp::logical_and || op == ReduceOp::bit_and) result = left && right;
    if (op == ReduceOp::logical_or || op == ReduceOp::bit_or) result = left || right;
    return static_cast<Wide>(result);
  }
};

// Serves f32 and f64; f16 and bf16 are calculated in FloatFormat<float>, too. A NaN in a result is always the same
// quiet one.
template <class T>
struct FloatFormat {
  using Stored = T;
  using Wide = T;
  LOCKSTEP_BOTH static Wide load(Stored stored) { return stored; }
  LOCKSTEP_BOTH static Stored store(Wide wide) { return wide; }
  LOCKSTEP_BOTH static Wide combine(ReduceOp op, Wide a, Wide b) {
    switch (op) {
      case ReduceOp::prod:
        return quiet(times(a, b));
      case ReduceOp::min:
        if (is_nan(a) || is_nan(b)) return quiet(plus(a, b));
        return is_less(b, a) ? b : a;
      case ReduceOp::max:
        if (is_nan(a) || is_nan(b)) return quiet(plus(a, b));
        return is_less(a, b) ? b : a;
      default:
        return quiet(plus(a, b));
    }
  }
  using Divisor = gpu::Divisor<T>;
  LOCKSTEP_BOTH static Divisor by(std::int64_t number) { return divisor_of<T>(number); }
  // Divides and rounds once. With `is_right`, it divides quickly and sets that to false if the quotient may be wrong;
  // the caller then divides again without it.
  LOCKSTEP_BOTH static Stored divide(Stored value, const Divisor& divisor, bool* is_right = nullptr) {
    return quiet(is_right != nullptr ? quick_over(value, divisor, *is_right) : over(value, divisor));
  }
  // Divides by a power of two, which needs one multiplication only.
  LOCKSTEP_BOTH static Stored divide_exactly(Stored value, const Divisor& divisor) {
    return quiet(exactly_over(value, divisor));
  }
  LOCKSTEP_BOTH static Stored scale(Stored value, double factor) { return quiet(times(value, static_cast<T>(factor))); }
  LOCKSTEP_BOTH static Stored convert(Wide wide) { return wide; }
};

// Conversions round to nearest, as the host's do. A NaN becomes quiet, and keeps its sign and as much of its payload as
// fits.
LOCKSTEP_BOTH double to_double(float value) {
  if (!is_nan(value)) return static_cast<double>(value);
  const std::uint64_t bits = bits_as<std::uint32_t>(value);
  return bits_as<double>((bits & 0x80000000U) << 32U | 0x7ff8000000000000U | (bits & 0x3fffffU) << 29U);
}
LOCKSTEP_BOTH float to_float(double value) {
  if (!is_nan(value)) return static_cast<float>(value);
  const auto bits = bits_as<std::uint64_t>(value);
  return bits_as<float>(
      static_cast<std::uint32_t>((bits >> 32U & 0x80000000U) | 0x7fc00000U | (bits >> 29U & 0x3fffffU)));
}

// Drops the last `places` bits of an integer, and rounds to nearest, ties to even.
LOCKSTEP_BOTH std::uint32_t without_places(std::uint32_t value, std::uint32_t places) {
  const std::uint32_t half = std::uint32_t{1} << (places - 1);
  return (value + (half - 1) + (value >> places & 1U)) >> places;
}

// Converts between float and the bits of f16; narrow() rounds to nearest, ties to even.
struct HalfBits {
  LOCKSTEP_BOTH static float widen(std::uint16_t bits) {
    const std::uint32_t sign = (bits & 0x8000U) << 16U;
    const std::uint32_t magnitude = bits & 0x7fffU;
    if (magnitude >= 0x7c00U) return bits_as<float>(sign | 0x7f800000U | (magnitude & 0x3ffU) << 13U);
    if (magnitude >= 0x400U) return bits_as<float>(sign | ((magnitude << 13U) + (112U << 23U)));
    // A subnormal is a multiple of 2^-24, and the product is exact.
    const float small = times(static_cast<float>(magnitude), bits_as<float>(std::uint32_t{103U << 23U}));
    return bits_as<float>(sign | bits_as<std::uint32_t>(small));
  }
  LOCKSTEP_BOTH static std::uint16_t narrow(float value) {
    const auto bits = bits_as<std::uint32_t>(value);
    const std::uint32_t sign = bits >> 16U & 0x8000U;
    const std::uint32_t magnitude = bits & 0x7fffffffU;
    std::uint32_t half = 0x7c00U;
    if (magnitude > 0x7f800000U)
      half = 0x7e00U | (magnitude >> 13U & 0x3ffU);
    else if (magnitude >= 113U << 23U && magnitude < 143U << 23U)  // 2^-14 to 2^16
      half = without_places(magnitude - (112U << 23U), 13);
    else if (magnitude < 102U << 23U)  // nearer to zero than to 2^-24
      half = 0;
    else if (magnitude < 113U << 23U)
      half = without_places((magnitude & 0x7fffffU) | 0x800000U, 126U - (magnitude >> 23U));
    return static_cast<std::uint16_t>(sign | half);
  }
};

// Converts between float and the bits of bf16; narrow() rounds to nearest, ties to even.
struct BrainBits {
  LOCKSTEP_BOTH static float widen(std::uint16_t bits) {
    return bits_as<float>(static_cast<std::uint32_t>(bits) << 16U);
  }
  LOCKSTEP_BOTH static std::uint16_t narrow(float value) {
    const auto bits = bits_as<std::uint32_t>(value);
    if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<std::uint16_t>(bits >> 16U | 0x40U);
    return static_cast<std::uint16_t>(without_places(bits, 16));
  }
};

// Stores elements in 16 bits, as Bits says, and calculates in float; each result is rounded once.
template <class Bits>
struct ShortFloatFormat {
  using Stored = std::uint16_t;
  using Wide = float;
  LOCKSTEP_BOTH static Wide load(Stored stored) { return Bits::widen(stored); }
  LOCKSTEP_BOTH static Stored store(Wide wide) { return Bits::narrow(quiet(wide)); }
  LOCKSTEP_BOTH static Wide combine(ReduceOp op, Wide a, Wide b) { return FloatFormat<float>::combine(op, a, b); }
  using Divisor = gpu::Divisor<float>;
  LOCKSTEP_BOTH static Divisor by(std::int64_t number) { return divisor_of<float>(number); }
  LOCKSTEP_BOTH static Stored divide(Stored value, const Divisor& divisor, bool* is_right = nullptr) {
    return store(FloatFormat<float>::divide(load(value), divisor, is_right));
  }
  LOCKSTEP_BOTH static Stored divide_exactly(Stored value, const Divisor& divisor) {
    return store(FloatFormat<float>::divide_exactly(load(value), divisor));
  }
  LOCKSTEP_BOTH static Stored scale(Stored value, double factor) {
    return store(FloatFormat<float>::scale(load(value), factor));
  }
  // Converts a float that was not calculated here: a NaN keeps as much of its payload as fits, unlike in store().
  LOCKSTEP_BOTH static Stored convert(Wide wide) { return Bits::narrow(wide); }
};

// Holds the real and the imaginary part of a complex number.
template <class T>
struct ValuePair {
  T first;
  T second;
};

// Combines complex numbers; only sum and product exist. Divisors and factors are real.
template <class T>
struct ComplexFormat {
  using Stored = ValuePair<T>;
  using Wide = ValuePair<T>;
  LOCKSTEP_BOTH static Wide load(Stored stored) { return stored; }
  LOCKSTEP_BOTH static Stored store(Wide wide) { return wide; }
  LOCKSTEP_BOTH static Wide combine(ReduceOp op, Wide a, Wide b) {
    if (op != ReduceOp::prod) return {quiet(plus(a.first, b.first)), quiet(plus(a.second, b.second))};
    return {quiet(plus(times(a.first, b.first), -times(a.second, b.second))),
            quiet(plus(times(a.first, b.second), times(a.second, b.first)))};
  }
  using Divisor = gpu::Divisor<T>;
  LOCKSTEP_BOTH static Divisor by(std::int64_t number) { return divisor_of<T>(number); }
  LOCKSTEP_BOTH static Stored divide(Stored value, const Divisor& divisor, bool* is_right = nullptr) {
    return {FloatFormat<T>::divide(value.first, divisor, is_right),
            FloatFormat<T>::divide(value.second, divisor, is_right)};
  }
  LOCKSTEP_BOTH static Stored divide_exactly(Stored value, const Divisor& divisor) {
    return {FloatFormat<T>::divide_exactly(value.first, divisor),
            FloatFormat<T>::divide_exactly(value.second, divisor)};
  }
  LOCKSTEP_BOTH static Stored scale(Stored value, double factor) {
    return {FloatFormat<T>::scale(value.first, factor), FloatFormat<T>::scale(value.second, factor)};
  }
};

// Holds a value and, behind it, an index of the same width.
template <class T>
struct ValueIndexPair {
  using Index = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  T value;
  Index index;
};

// Finds the minimum or maximum with its index. A NaN wins over numbers; of equal values the lower index wins.
template <class T>
struct LocatedFormat {
  using Stored = ValueIndexPair<T>;
  using Wide = ValueIndexPair<T>;
  LOCKSTEP_BOTH static Wide load(Stored stored) { return stored; }
  LOCKSTEP_BOTH static Stored store(Wide wide) { return wide; }
  LOCKSTEP_BOTH static bool is_better(ReduceOp op, T a, T b) {
    if (is_nan(a) || is_nan(b)) return is_nan(a) && !is_nan(b);
    return op == ReduceOp::min ? is_less(a, b) : is_less(b, a);
  }
  LOCKSTEP_BOTH static Wide combine(ReduceOp op, Wide a, Wide b) {
    Wide winner = b.index < a.index ? b : a;
    if (is_better(op, a.value, b.value)) winner = a;
    if (is_better(op, b.value, a.value)) winner = b;
    if constexpr (std::is_floating_point_v<T>) winner.value = quiet(winner.value);
    return winner;
  }
};

// Calls `use` with an object of the type's format. Returns false, without a call, if elements of this type are not
// reduced.
template <class Use>
bool with_format(DataType type, const Use& use) {
  switch (type) {
    case DataType::i8:
      return use(IntegerFormat<std::int8_t>()), true;
    case DataType::i16:
      return use(IntegerFormat<std::int16_t>()), true;
    case DataType::i32:
      return use(IntegerFormat<std::int32_t>()), true;
    case DataType::i64:
      return use(IntegerFormat<std::int64_t>()), true;
    case DataType::u8:
      return use(IntegerFormat<std::uint8_t>()), true;
    case DataType::u16:
      return use(IntegerFormat<std::uint16_t>()), true;
    case DataType::u32:
      return use(IntegerFormat<std::uint32_t>()), true;
    case DataType::u64:
      return use(IntegerFormat<std::uint64_t>()), true;
    case DataType::f16:
      return use(ShortFloatFormat<HalfBits>()), true;
    case DataType::bf16:
      return use(ShortFloatFormat<BrainBits>()), true;
    case DataType::f32:
      return use(FloatFormat<float>()), true;
    case DataType::f64:
      return use(FloatFormat<double>()), true;
    case DataType::c64:
      return use(ComplexFormat<float>()), true;
    case DataType::c128:
      return use(ComplexFormat<double>()), true;
    case DataType::boolean:
      return use(BooleanFormat()), true;
    case DataType::located_i32:
      return use(LocatedFormat<std::int32_t>()), true;
    case DataType::located_i64:
      return use(LocatedFormat<std::int64_t>()), true;
    case DataType::located_f32:
      return use(LocatedFormat<float>()), true;
    case DataType::located_f64:
      return use(LocatedFormat<double>()), true;
    default:
      return false;
  }
}

}  // namespace lockstep::gpu
