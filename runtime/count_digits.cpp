// SPDX-License-Identifier: Apache-2.0
// Cuts integers into digits of a type, and puts their sums together.
#include "runtime/count_digits.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "collectives/types.hpp"
#include "collectives/visit_type.hpp"
#include "runtime/values/arithmetic.hpp"

namespace lockstep::detail {
namespace {

// Returns the largest integer up to which sums of integers are exact in the type; 0 for a type that is not used. A mean
// may divide each value before it adds, so that it keeps fewer bits.
std::int64_t largest_exact_sum(DataType type, ReduceOp op, bool is_narrow) {
  const auto two_to = [](int bits) { return std::int64_t{1} << bits; };
  if (op == ReduceOp::avg)
    return type == DataType::f64 ? two_to(40) : type == DataType::f32 && !is_narrow ? two_to(13) : 0;
  if (op != ReduceOp::sum) return 0;
  switch (type) {
    case DataType::i8:
      return two_to(7) - 1;
    case DataType::u8:
    case DataType::bf16:
      return two_to(8) - 1;
    case DataType::f16:
      return two_to(11);
    case DataType::i16:
    case DataType::u16:
      return two_to(15) - 1;
    case DataType::f32:
      return two_to(is_narrow ? 8 : 24);
    case DataType::i32:
    case DataType::u32:
      return two_to(31) - 1;
    case DataType::f64:
    case DataType::i64:
    case DataType::u64:
      return two_to(53);
    default:
      return 0;
  }
}

// Calls `function` with a number of the type. Only types that carry counts come here.
template <class F>
void with_number_of(DataType type, F&& function) {
  visit_type(type, [&]<class T>(std::type_identity<T> /*for its type*/) {
    if constexpr (Number<T> && !std::is_same_v<T, bool> && !is_complex<T>) function(T{});
  });
}

// Converts through float for 16-bit floats, which have no other conversion.
template <class T>
using Wide = std::conditional_t<std::is_arithmetic_v<T>, T, float>;
template <class T>
T number_of(std::uint64_t digit) {
  return static_cast<T>(static_cast<Wide<T>>(digit));
}

}  // namespace

void CountDigits::encode(std::span<const std::int64_t> counts, std::byte* digits) const {
  with_number_of(type, [&]<class T>(T /*for its type*/) {
    for (const std::int64_t count : counts) {
      const auto whole = static_cast<std::uint64_t>(count);
      for (int at = 0; at < 64; at += bits) {
        const std::uint64_t digit = bits == 64 ? whole : whole >> at & ((std::uint64_t{1} << bits) - 1);
        const T element = number_of<T>(digit);
        std::memcpy(digits, &element, sizeof(T));
        digits += sizeof(T);
      }
    }
  });
}

void CountDigits::decode(const std::byte* digits, std::span<std::int64_t> counts) const {
  with_number_of(type, [&]<class T>(T element) {
    for (std::int64_t& count : counts) {
      std::uint64_t whole = 0;
      for (int at = 0; at < 64; at += bits) {
        std::memcpy(&element, digits, sizeof(T));
        digits += sizeof(T);
        if constexpr (std::is_integral_v<T>)
          whole += static_cast<std::uint64_t>(element) << at;
        else
          whole +=
              static_cast<std::uint64_t>(std::llround(static_cast<double>(static_cast<Wide<T>>(element)) * divisor))
              << at;
      }
      count = static_cast<std::int64_t>(whole);
    }
  });
}

CountDigits choose_count_digits(const std::vector<DataType>& types, ReduceOp op, int replicas, bool is_narrow) {
  CountDigits best{.bits = 0};
  for (const DataType type : types) {
    int bits = 0;
    while (bits < 32 && ((std::int64_t{2} << bits) - 1) * replicas <= largest_exact_sum(type, op, is_narrow)) ++bits;
    if (bits > best.bits) best = {type, op, bits, op == ReduceOp::avg ? replicas : 1};
  }
  return best.bits > 0 ? best : CountDigits{};
}

}  // namespace lockstep::detail
