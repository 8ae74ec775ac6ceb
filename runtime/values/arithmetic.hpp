// SPDX-License-Identifier: Apache-2.0
// Arithmetic on single elements of every type, 16-bit floats by way of float. Pure.
#pragma once

#include <complex>
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

// `function(a, b)` in the type that can calculate.
template <class T, class F>
T calculate(const T& a, const T& b, F&& function) {
  if constexpr (is_small_float<T>)
    return T(static_cast<float>(function(static_cast<float>(a), static_cast<float>(b))));
  else
    return static_cast<T>(function(a, b));
}

enum class Change { assign, add, subtract, multiply, divide, min, max };

[[noreturn]] inline void refuse_change(const char* why) {
  throw Error(Code::usage, why, "use a type that can be calculated with");
}

// The element after the change.
template <class T>
T changed(Change change, const T& old, const T& by) {
  const auto with = [&](auto&& function) { return calculate(old, by, function); };
  if (change == Change::assign) return by;
  if constexpr (std::is_same_v<T, bool>) {
    refuse_change("arithmetic on bool");
  } else {
    switch (change) {
      case Change::add:
        return with([](auto a, auto b) { return a + b; });
      case Change::subtract:
        return with([](auto a, auto b) { return a - b; });
      case Change::multiply:
        return with([](auto a, auto b) { return a * b; });
      case Change::divide:
        if constexpr (!is_fractional_number<T>) {
          if (by == T{}) refuse_change("division of an integer by zero");
        }
        return with([](auto a, auto b) { return a / b; });
      default:
        break;
    }
    if constexpr (is_complex<T>)
      refuse_change("the lesser and the greater of complex numbers");
    else if (change == Change::min)
      return with([](auto a, auto b) { return b < a ? b : a; });
    else
      return with([](auto a, auto b) { return a < b ? b : a; });
  }
}

template <class T>
T divided(const T& value, std::size_t by) {
  if constexpr (is_small_float<T>)
    return T(static_cast<float>(value) / static_cast<float>(by));
  else if constexpr (is_complex<T>)
    return value / static_cast<typename T::value_type>(by);
  else
    return static_cast<T>(value / static_cast<T>(by));
}

}  // namespace lockstep::detail
