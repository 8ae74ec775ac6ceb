// SPDX-License-Identifier: Apache-2.0
// Declares the element types that C++ lacks, as plain values that store and convert but do not calculate. Also maps C++
// types to DataType. All of it is pure.
#pragma once

#include <bit>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "collectives/spec.hpp"

namespace lockstep {

namespace detail {
// Convert between floats and the bits of 16-bit floats. They round to nearest, ties to even, and keep NaN.
float half_to_float(std::uint16_t bits);
std::uint16_t half_from_float(float value);
float bfloat_to_float(std::uint16_t bits);
std::uint16_t bfloat_from_float(float value);
}  // namespace detail

// Stores an IEEE 754 half-precision number. Conversion rounds to nearest, ties to even; NaN stays NaN.
struct f16 {  // NOLINT(readability-identifier-naming): named like a type of the language
  std::uint16_t bits = 0;
  f16() = default;
  explicit f16(float value) : bits(detail::half_from_float(value)) {}
  explicit operator float() const { return detail::half_to_float(bits); }
  bool operator==(const f16&) const = default;  // compares bits: -0 differs from 0
};

// Stores the upper half of a float. Conversion rounds to nearest, ties to even; NaN stays NaN.
struct bf16 {  // NOLINT(readability-identifier-naming): named like a type of the language
  std::uint16_t bits = 0;
  bf16() = default;
  explicit bf16(float value) : bits(detail::bfloat_from_float(value)) {}
  explicit operator float() const { return detail::bfloat_to_float(bits); }
  bool operator==(const bf16&) const = default;  // compares bits: -0 differs from 0
};

// Pairs a value with its index. min and max keep the better value, and the smaller index if values are equal. The index
// is as wide as the value, so there is no padding.
template <class T>
struct Located {
  using Index = std::conditional_t<sizeof(T) == 4, std::int32_t, std::int64_t>;
  T value{};
  Index index{};
  bool operator==(const Located&) const = default;
};

namespace detail {
// Returns the DataType of an integer by its width and sign, because several C++ types have the same width.
template <class T>
constexpr DataType integer_type() {
  constexpr int width = std::countr_zero(sizeof(T));
  return static_cast<DataType>(static_cast<int>(std::is_signed_v<T> ? DataType::i8 : DataType::u8) + width);
}

// True for std::complex<Part>, and for types with all of its interface, such as thrust::complex<Part>: they have its
// layout too. <complex> would cost each program that uses lockstep a fifth of its compile time.
template <class T, class Part>
concept ComplexOf = std::is_same_v<typename T::value_type, Part> && sizeof(T) == 2 * sizeof(Part) &&
                    std::is_constructible_v<T, Part, Part>&& requires(T number, Part part) {
  requires std::is_same_v<std::remove_cvref_t<decltype(std::as_const(number).real())>, Part>;
  requires std::is_same_v<std::remove_cvref_t<decltype(std::as_const(number).imag())>, Part>;
  number.real(part);
  number.imag(part);
  number = part;
  number += number;
  number *= number;
};

template <class T>
constexpr DataType find_type() {
  if constexpr (std::is_same_v<T, bool>)
    return DataType::boolean;
  else if constexpr (std::is_same_v<T, f16>)
    return DataType::f16;
  else if constexpr (std::is_same_v<T, bf16>)
    return DataType::bf16;
  else if constexpr (std::is_same_v<T, float>)
    return DataType::f32;
  else if constexpr (std::is_same_v<T, double>)
    return DataType::f64;
  else if constexpr (ComplexOf<T, float>)
    return DataType::c64;
  else if constexpr (ComplexOf<T, double>)
    return DataType::c128;
  else if constexpr (std::is_same_v<T, Located<std::int32_t>>)
    return DataType::located_i32;
  else if constexpr (std::is_same_v<T, Located<std::int64_t>>)
    return DataType::located_i64;
  else if constexpr (std::is_same_v<T, Located<float>>)
    return DataType::located_f32;
  else if constexpr (std::is_same_v<T, Located<double>>)
    return DataType::located_f64;
  else if constexpr (std::is_integral_v<T> && sizeof(T) <= 8)
    return integer_type<T>();
  else
    return DataType::opaque;
}
}  // namespace detail

// Holds the DataType of a C++ type; opaque for a type of the user's own.
template <class T>
inline constexpr DataType data_type_of = detail::find_type<std::remove_cv_t<T>>();

}  // namespace lockstep
