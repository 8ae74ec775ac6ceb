// SPDX-License-Identifier: Apache-2.0
// Defines the meaning of reductions, one element at a time and as plainly as possible. Only tests use it: it is slow,
// and was written without a look at the kernels.
#pragma once

#include <bit>
#include <cmath>
#include <complex>
#include <concepts>
#include <cstdint>
#include <limits>
#include <span>
#include <type_traits>

#include "collectives/spec.hpp"
#include "collectives/types.hpp"

namespace lockstep::reference {

// Holds a byte of a bool buffer, which may have any value. All values but 0 are true.
struct Flag {
  std::uint8_t byte = 0;
};

template <class T>
concept ShortFloat = std::same_as<T, f16> || std::same_as<T, bf16>;

template <class T>
concept Complex = std::same_as<T, std::complex<float>> || std::same_as<T, std::complex<double>>;

// Accepts values that carry an index.
template <class T>
concept LocatedValue = requires(T value) {
  typename T::Index;
};

// Returns the value, or the only NaN of results for any NaN.
template <std::floating_point T>
T quiet(T value) {
  if (!std::isnan(value)) return value;
  if constexpr (sizeof(T) == 4)
    return std::bit_cast<T>(std::uint32_t{0x7fc00000});
  else
    return std::bit_cast<T>(std::uint64_t{0x7ff8000000000000});
}

// Returns the value, and keeps the compiler from computing more exactly than one operation at a time.
template <std::floating_point T>
T rounded(T value) {
  volatile T kept = value;
  return kept;
}

template <std::floating_point T>
bool is_less(T a, T b) {
  // -0 counts as less than +0.
  if (a == 0 && b == 0) return std::signbit(a) && !std::signbit(b);
  return a < b;
}

template <std::floating_point T>
T combine(ReduceOp op, T a, T b) {
  if (op == ReduceOp::sum) return quiet(rounded(a + b));
  if (op == ReduceOp::prod) return quiet(rounded(a * b));
  if (std::isnan(a) || std::isnan(b)) return quiet(std::numeric_limits<T>::quiet_NaN());
  if (op == ReduceOp::min) return is_less(b, a) ? b : a;
  return is_less(a, b) ? b : a;
}

template <Complex T>
T combine(ReduceOp op, T a, T b) {
  // Only sum and product are defined for complex numbers.
  if (op == ReduceOp::sum) return {quiet(rounded(a.real() + b.real())), quiet(rounded(a.imag() + b.imag()))};
  const auto real = rounded(rounded(a.real() * b.real()) - rounded(a.imag() * b.imag()));
  const auto imag = rounded(rounded(a.real() * b.imag()) + rounded(a.imag() * b.real()));
  return {quiet(real), quiet(imag)};
}

template <std::integral T>
T combine(ReduceOp op, T a, T b) {
  // Sums and products wrap around, which unsigned numbers define.
  const auto wide_a = static_cast<std::uint64_t>(a);
  const auto wide_b = static_cast<std::uint64_t>(b);
  switch (op) {
    case ReduceOp::sum:
      return static_cast<T>(wide_a + wide_b);
    case ReduceOp::prod:
      return static_cast<T>(wide_a * wide_b);
    case ReduceOp::min:
      return a < b ? a : b;
    case ReduceOp::max:
      return a > b ? a : b;
    case ReduceOp::logical_and:
      return a != 0 && b != 0 ? 1 : 0;
    case ReduceOp::logical_or:
      return a != 0 || b != 0 ? 1 : 0;
    case ReduceOp::logical_xor:
      return (a != 0) != (b != 0) ? 1 : 0;
    case ReduceOp::bit_and:
      return static_cast<T>(wide_a & wide_b);
    case ReduceOp::bit_or:
      return static_cast<T>(wide_a | wide_b);
    default:
      return static_cast<T>(wide_a ^ wide_b);
  }
}

inline Flag combine(ReduceOp op, Flag a, Flag b) {
  const bool left = a.byte != 0;
  const bool right = b.byte != 0;
  bool result = left != right;
  if (op == ReduceOp::logical_and || op == ReduceOp::bit_and) result = left && right;
  if (op == ReduceOp::logical_or || op == ReduceOp::bit_or) result = left || right;
  return {static_cast<std::uint8_t>(result ? 1 : 0)};
}

// Returns true if `a` wins over `b` in a minimum or maximum with index. NaN wins over all numbers.
template <class T>
bool is_better(ReduceOp op, T a, T b) {
  if constexpr (std::floating_point<T>) {
    if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && !std::isnan(b);
    return op == ReduceOp::min ? is_less(a, b) : is_less(b, a);
  } else {
    return op == ReduceOp::min ? a < b : b < a;
  }
}

template <LocatedValue T>
T combine(ReduceOp op, T a, T b) {
  // Of equal values the smaller index wins.
  T winner = b.index < a.index ? b : a;
  if (is_better(op, a.value, b.value)) winner = a;
  if (is_better(op, b.value, a.value)) winner = b;
  if constexpr (std::floating_point<decltype(winner.value)>) winner.value = quiet(winner.value);
  return winner;
}

// Combines values from left to right. 16-bit floats are combined in 32 bits and rounded at the end. A single value is
// returned unchanged.
template <class T>
T reduce(ReduceOp op, std::span<const T> values) {
  if (op == ReduceOp::avg || op == ReduceOp::premul_sum) op = ReduceOp::sum;
  if (values.size() == 1) return values[0];
  if constexpr (ShortFloat<T>) {
    auto all = static_cast<float>(values[0]);
    for (const T each : values.subspan(1)) all = combine(op, all, static_cast<float>(each));
    return T(quiet(all));
  } else {
    T all = values[0];
    for (const T each : values.subspan(1)) all = combine(op, all, each);
    return all;
  }
}

// Divides as avg does. Integers round towards zero.
template <class T>
T divide(T value, std::int64_t divisor) {
  if constexpr (ShortFloat<T>) {
    return T(quiet(rounded(static_cast<float>(value) / static_cast<float>(divisor))));
  } else if constexpr (std::floating_point<T>) {
    return quiet(rounded(value / static_cast<T>(divisor)));
  } else if constexpr (Complex<T>) {
    return {divide(value.real(), divisor), divide(value.imag(), divisor)};
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(value) / divisor);
  } else {
    return static_cast<T>(static_cast<std::uint64_t>(value) / static_cast<std::uint64_t>(divisor));
  }
}

// Multiplies as premul_sum does. Integers are rounded towards zero and clamped to the type; NaN gives 0.
template <class T>
T scale(T value, double factor) {
  if constexpr (ShortFloat<T>) {
    return T(quiet(rounded(static_cast<float>(value) * static_cast<float>(factor))));
  } else if constexpr (std::floating_point<T>) {
    return quiet(rounded(value * static_cast<T>(factor)));
  } else if constexpr (Complex<T>) {
    return {scale(value.real(), factor), scale(value.imag(), factor)};
  } else {
    const double product = rounded(static_cast<double>(value) * factor);
    if (std::isnan(product)) return 0;
    const long double whole = std::trunc(product);
    if (whole > static_cast<long double>(std::numeric_limits<T>::max())) return std::numeric_limits<T>::max();
    if (whole < static_cast<long double>(std::numeric_limits<T>::min())) return std::numeric_limits<T>::min();
    return static_cast<T>(whole);
  }
}

}  // namespace lockstep::reference
