// SPDX-License-Identifier: Apache-2.0
// Maps the library's data types to C++ types, for the data of a bench.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>

#include "collectives/spec.hpp"
#include "collectives/types.hpp"
#include "collectives/visit_type.hpp"

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
  visit_type(type, [&]<class T>(std::type_identity<T> /*for its type*/) {
    if constexpr (std::is_void_v<T> || std::is_same_v<T, bool>)
      f(std::uint8_t{});
    else
      f(T{});
  });
}

}  // namespace lockstep::bench
