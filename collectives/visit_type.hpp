// SPDX-License-Identifier: Apache-2.0
// Finds the C++ type of elements whose type is known at run time only. Pure.
#pragma once

#include <complex>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "collectives/types.hpp"

namespace lockstep {

// Calls `function(std::type_identity<T>())` with the C++ type of the elements, and returns its result. T is void for
// types that have none of their own, such as those with an index.
template <class F>
decltype(auto) visit_type(DataType type, F&& function) {
  switch (type) {
    case DataType::boolean:
      return function(std::type_identity<bool>());
    case DataType::i8:
      return function(std::type_identity<std::int8_t>());
    case DataType::i16:
      return function(std::type_identity<std::int16_t>());
    case DataType::i32:
      return function(std::type_identity<std::int32_t>());
    case DataType::i64:
      return function(std::type_identity<std::int64_t>());
    case DataType::u8:
      return function(std::type_identity<std::uint8_t>());
    case DataType::u16:
      return function(std::type_identity<std::uint16_t>());
    case DataType::u32:
      return function(std::type_identity<std::uint32_t>());
    case DataType::u64:
      return function(std::type_identity<std::uint64_t>());
    case DataType::f16:
      return function(std::type_identity<f16>());
    case DataType::bf16:
      return function(std::type_identity<bf16>());
    case DataType::f32:
      return function(std::type_identity<float>());
    case DataType::f64:
      return function(std::type_identity<double>());
    case DataType::c64:
      return function(std::type_identity<std::complex<float>>());
    case DataType::c128:
      return function(std::type_identity<std::complex<double>>());
    default:
      return function(std::type_identity<void>());
  }
}

}  // namespace lockstep
