// SPDX-License-Identifier: Apache-2.0
// Arithmetic on single elements of every type, 16-bit floats by way of float. Pure.
#pragma once

#include <cmath>
#include <complex>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "collectives/types.hpp"
#include "topology/base/error.hpp"

namespace lockstep::detail {

template <class T>
inline constexpr bool is_small_float = std::is_same_v<T, f16> || std::is_same_v<T, bf16>;
template <class T>
inline constexpr bool is_complex = std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
// Has fractions.
template <class T>
inline constexpr bool is_fractional_number = std::is_floating_point_v<T> || is_small_float<T> || is_complex<T>;

// What a type is calculated in: small floats in float, integers without a sign, so that they wrap around.
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

// `function(a, b)` in the type that can calculate.
template <class T, class F>
T calculate(const T& a, const T& b, F&& function) {
  using C = typename ArithmeticType<T>::Type;
  return static_cast<T>(function(static_cast<C>(a), static_cast<C>(b)));
}

// As the collectives have it: what is no number stays none, and -0 is less than 0.
template <class T>
bool is_less(const T& a, const T& b) {
  if constexpr (is_small_float<T>) {
    return is_less(static_cast<float>(a), static_cast<float>(b));
  } else if constexpr (std::is_floating_point_v<T>) {
    if (a == b) return std::signbit(a) && !std::signbit(b);
    return a < b;
  } else {
    return a < b;
  }
}
template <class T>
bool is_nan(const T& a) {
  if constexpr (is_small_float<T>)
    return std::isnan(static_cast<float>(a));
  else if constexpr (std::is_floating_point_v<T>)
    return std::isnan(a);
  else
    return false;
}

enum class UpdateOp { assign, add, subtract, multiply, divide, min, max };

[[noreturn]] inline void refuse_change(const char* why) {
  throw Error(Code::usage, why, "use a type that can be calculated with");
}

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

// The element after the change.
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

// A mean of so many. Integers in 64 bits, towards zero.
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
