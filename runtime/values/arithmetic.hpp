// SPDX-License-Identifier: Apache-2.0
// Defines arithmetic on single elements of every type. 16-bit floats are computed in float. Pure.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "collectives/types.hpp"
#include "topology/base/error.hpp"

namespace lockstep::detail {

// True for 16-bit floats.
template <class T>
inline constexpr bool is_small_float = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
// True for complex numbers.
template <class T>
inline constexpr bool is_complex = ComplexOf<T, float> || ComplexOf<T, double>;
// True for types with fractions.
template <class T>
inline constexpr bool is_fractional_number = std::is_floating_point_v<T> || is_small_float<T> || is_complex<T>;

// Is an element type of collectives, or bool.
template <class T>
concept Number = std::is_arithmetic_v<T> || is_small_float<T> || is_complex<T>;

// Gives the type for calculations: float for small floats, unsigned types for integers, so that they wrap around.
template <class T>
struct ArithmeticType {
  using Type = T;
};
template <>
struct ArithmeticType<f16> {
  using Type = float;
};
template <>
struct ArithmeticType<bf16> {
  using Type = float;
};
template <std::integral T>
struct ArithmeticType<T> {
  using Type = std::conditional_t<sizeof(T) < 4, std::uint32_t, std::make_unsigned_t<T>>;
};
template <>
struct ArithmeticType<bool> {
  using Type = bool;
};

// Returns `function(a, b)`, computed in the type for calculations.
template <class T, class F>
T calculate(const T& a, const T& b, F&& function) {
  using C = typename ArithmeticType<T>::Type;
  return static_cast<T>(function(static_cast<C>(a), static_cast<C>(b)));
}

// True for a float whose sign bit is set, also for -0. std::signbit would bring all of <cmath> to every program.
template <std::floating_point T>
bool is_negative(T a) {
  return std::bit_cast<std::int64_t>(static_cast<double>(a)) < 0;
}
// Orders elements as the collectives do: NaN stays NaN, and -0 is less than 0.
template <class T>
bool is_less(const T& a, const T& b) {
  if constexpr (is_small_float<T>) {
    return is_less(static_cast<float>(a), static_cast<float>(b));
  } else if constexpr (std::is_floating_point_v<T>) {
    if (a == b) return is_negative(a) && !is_negative(b);
    return a < b;
  } else {
    return a < b;
  }
}
// True if a float is no number. False for other types.
template <class T>
bool is_nan(const T& a) {
  if constexpr (is_small_float<T>)
    return is_nan(static_cast<float>(a));
  else if constexpr (std::is_floating_point_v<T>)
    return a != a;  // NOLINT(misc-redundant-expression): true for NaN alone
  else
    return false;
}

// Names a change of a variable's elements.
enum class UpdateOp { assign, add, subtract, multiply, divide, min, max };

// Throws Error usage with the reason.
[[noreturn]] inline void refuse_change(const char* why) {
  throw Error(Code::usage, why, "use a type that can be calculated with");
}

// Returns a / b. Throws Error usage for the division of an integer by zero.
template <class T>
T quotient(const T& a, const T& b) {
  if constexpr (is_fractional_number<T>) {
    return calculate(a, b, [](auto x, auto y) { return x / y; });
  } else {
    if (b == T{}) refuse_change("division of an integer by zero");
    if constexpr (std::is_signed_v<T>) {
      if (b == T{-1}) return calculate(T{}, a, [](auto zero, auto y) { return zero - y; });
    }
    return static_cast<T>(a / b);
  }
}

// Returns the element after the change. Throws Error usage for a type without the operation.
template <class T>
T changed(UpdateOp change, const T& old, const T& by) {
  const auto with = [&](auto&& function) { return calculate(old, by, function); };
  if (change == UpdateOp::assign) return by;
  if constexpr (std::is_same_v<T, bool>) {
    refuse_change("arithmetic on bool");
  } else {
    switch (change) {
      case UpdateOp::add:
        return with([](auto a, auto b) { return a + b; });
      case UpdateOp::subtract:
        return with([](auto a, auto b) { return a - b; });
      case UpdateOp::multiply:
        return with([](auto a, auto b) { return a * b; });
      case UpdateOp::divide:
        return quotient(old, by);
      default:
        break;
    }
    if constexpr (is_complex<T>) {
      refuse_change("the lesser and the greater of complex numbers");
    } else {
      if (is_nan(old) || is_nan(by)) return is_nan(old) ? old : by;
      const bool takes = change == UpdateOp::min ? is_less(by, old) : is_less(old, by);
      return takes ? by : old;
    }
  }
}

// Returns a sum of `by` values as their mean. Integers divide in 64 bits, towards zero.
template <class T>
T divided(const T& value, std::size_t by) {
  if constexpr (is_small_float<T>)
    return T(static_cast<float>(value) / static_cast<float>(by));
  else if constexpr (is_complex<T>)
    return value / static_cast<typename T::value_type>(by);
  else if constexpr (std::is_floating_point_v<T>)
    return static_cast<T>(value / static_cast<T>(by));
  else if (by == 0)
    refuse_change("the mean of no integers");
  else if constexpr (std::is_signed_v<T>)
    return static_cast<T>(static_cast<std::int64_t>(value) / static_cast<std::int64_t>(by));
  else
    return static_cast<T>(static_cast<std::uint64_t>(value) / static_cast<std::uint64_t>(by));
}

}  // namespace lockstep::detail
