// SPDX-License-Identifier: Apache-2.0
// Maps the library's data types to C++ types, for the data of a bench.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include "collectives/spec.hpp"
#include "collectives/types.hpp"

namespace lockstep::bench {

// Converts a number to T; a complex T gets no imaginary part.
template <class T>
T number(double value) {
  if constexpr (std::is_same_v<T, std::complex<float>>)
    return {static_cast<float>(value), 0};
  else if constexpr (std::is_same_v<T, f16> || std::is_same_v<T, bf16>)
    return T(static_cast<float>(value));
  else
    return T(value);
}

// Calls `f` with a value of the C++ type. Any other type counts as u8.
template <class F>
void with_type(DataType type, const F& f) {
  switch (type) {
    case DataType::i8:
      return f(std::int8_t{});
    case DataType::i16:
      return f(std::int16_t{});
    case DataType::i32:
      return f(std::int32_t{});
    case DataType::i64:
      return f(std::int64_t{});
    case DataType::u16:
      return f(std::uint16_t{});
    case DataType::u32:
      return f(std::uint32_t{});
    case DataType::u64:
      return f(std::uint64_t{});
    case DataType::f16:
      return f(f16{});
    case DataType::bf16:
      return f(bf16{});
    case DataType::f32:
      return f(float{});
    case DataType::f64:
      return f(double{});
    case DataType::c64:
      return f(std::complex<float>{});
    case DataType::c128:
      return f(std::complex<double>{});
    default:
      return f(std::uint8_t{});
  }
}

}  // namespace lockstep::bench
