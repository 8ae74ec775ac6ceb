// SPDX-License-Identifier: Apache-2.0
// Data for the tests of kernels: numbers that lie at the edges of their types among ordinary ones, places in
// memory that are aligned to nothing, and guards around them.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <complex>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "collectives/kernels/reference.hpp"
#include "collectives/types.hpp"

namespace lockstep::test {

using Random = std::mt19937_64;

// Calls the function with a value of the C++ type that stands for the data type.
template <class Function>
void with_type(DataType type, const Function& function) {
  switch (type) {
    case DataType::i8:
      return function(std::int8_t{});
    case DataType::i16:
      return function(std::int16_t{});
    case DataType::i32:
      return function(std::int32_t{});
    case DataType::i64:
      return function(std::int64_t{});
    case DataType::u8:
      return function(std::uint8_t{});
    case DataType::u16:
      return function(std::uint16_t{});
    case DataType::u32:
      return function(std::uint32_t{});
    case DataType::u64:
      return function(std::uint64_t{});
    case DataType::f16:
      return function(f16{});
    case DataType::bf16:
      return function(bf16{});
    case DataType::f32:
      return function(float{});
    case DataType::f64:
      return function(double{});
    case DataType::c64:
      return function(std::complex<float>{});
    case DataType::c128:
      return function(std::complex<double>{});
    case DataType::boolean:
      return function(reference::Flag{});
    case DataType::located_i32:
      return function(Located<std::int32_t>{});
    case DataType::located_i64:
      return function(Located<std::int64_t>{});
    case DataType::located_f32:
      return function(Located<float>{});
    case DataType::located_f64:
      return function(Located<double>{});
    case DataType::opaque:
      break;
  }
}

// How the bits of a kind of float are laid out, and a number of them that is near 1.
template <class T>
struct FloatShape;
template <>
struct FloatShape<f16> {
  using Bits = std::uint16_t;
  static constexpr int mantissa = 10;
};
template <>
struct FloatShape<bf16> {
  using Bits = std::uint16_t;
  static constexpr int mantissa = 7;
};
template <>
struct FloatShape<float> {
  using Bits = std::uint32_t;
  static constexpr int mantissa = 23;
};
template <>
struct FloatShape<double> {
  using Bits = std::uint64_t;
  static constexpr int mantissa = 52;
};

// One of: zero, infinity, NaN that is quiet or signals and has a payload, the smallest and the largest subnormal
// and normal numbers, 1; of either sign.
template <class T>
T edge_float(Random& random) {
  using Bits = typename FloatShape<T>::Bits;
  constexpr int mantissa = FloatShape<T>::mantissa;
  constexpr int width = static_cast<int>(sizeof(T)) * 8;
  constexpr auto unit = static_cast<Bits>(Bits{1} << mantissa);
  constexpr auto sign = static_cast<Bits>(Bits{1} << (width - 1));
  constexpr auto infinity = static_cast<Bits>(sign - unit);
  constexpr auto one = static_cast<Bits>((infinity / 2) & ~(unit - 1U));
  const std::array<Bits, 11> edges = {0,
                                      infinity,
                                      static_cast<Bits>(infinity + 1U),
                                      static_cast<Bits>(infinity + unit / 2 + 5U),
                                      static_cast<Bits>(sign - 1U),
                                      1,
                                      static_cast<Bits>(unit - 1U),
                                      unit,
                                      static_cast<Bits>(infinity - 1U),
                                      one,
                                      static_cast<Bits>(one + 1U)};
  const Bits chosen = edges[random() % edges.size()];
  return std::bit_cast<T>(static_cast<Bits>(random() % 2 == 0 ? chosen : chosen | sign));
}

template <class T>
T edge_integer(Random& random) {
  const std::array<T, 6> edges = {0,
                                  1,
                                  static_cast<T>(-1),
                                  std::numeric_limits<T>::min(),
                                  std::numeric_limits<T>::max(),
                                  static_cast<T>(std::numeric_limits<T>::min() + 1)};
  return edges[random() % edges.size()];
}

// `rare`: how seldom an edge comes up. Sums of many are NaN too often otherwise.
template <class T>
T any_value(Random& random, unsigned rare) {
  const bool edge = random() % rare == 0;
  if constexpr (std::is_same_v<T, reference::Flag>) {
    return {static_cast<std::uint8_t>(edge ? random() : random() % 2)};
  } else if constexpr (std::is_integral_v<T>) {
    if (edge) return edge_integer<T>(random);
    return static_cast<T>(random() % 3 == 0 ? random() % 5 : random());
  } else if constexpr (reference::Complex<T>) {
    using Part = typename T::value_type;
    return {any_value<Part>(random, rare), any_value<Part>(random, rare)};
  } else if constexpr (reference::LocatedValue<T>) {
    using Value = decltype(T::value);
    using Index = typename T::Index;
    T found;
    found.value = any_value<Value>(random, rare);
    if (random() % 2 == 0)
      found.value = static_cast<Value>(static_cast<int>(random() % 3) - 1);  // so that some are equal
    found.index = random() % 8 == 0 ? edge_integer<Index>(random) : static_cast<Index>(random() % 4);
    return found;
  } else {
    if (edge) return edge_float<T>(random);
    if (random() % 8 == 0) return std::bit_cast<T>(static_cast<typename FloatShape<T>::Bits>(random()));
    return T(static_cast<float>(static_cast<int>(random() % 8192) - 4096) / 1024.0F);
  }
}

template <class T>
std::vector<T> any_values(Random& random, std::size_t count, unsigned rare) {
  std::vector<T> values(count);
  std::ranges::generate(values, [&] { return any_value<T>(random, rare); });
  return values;
}

// A stretch of bytes with guards before and behind it, at an address that is `shift` away from an aligned one.
class Place {
 public:
  static constexpr std::size_t guard_bytes = 64;
  static constexpr std::uint8_t guard = 0xa5;

  Place(std::size_t bytes, std::size_t shift)
      : memory_(bytes + shift + 2 * guard_bytes + alignment, guard), bytes_(bytes), begin_(guard_bytes + shift) {
    begin_ += (alignment - reinterpret_cast<std::uintptr_t>(memory_.data()) % alignment) % alignment;
  }

  std::uint8_t* data() { return memory_.data() + begin_; }
  void fill(const void* source) {
    if (bytes_ > 0) std::memcpy(data(), source, bytes_);
  }
  void spoil() { std::memset(data(), guard, bytes_); }
  bool holds(const void* expected) const {
    return bytes_ == 0 || std::memcmp(memory_.data() + begin_, expected, bytes_) == 0;
  }
  bool is_guarded() const {
    const auto intact = [](std::uint8_t byte) { return byte == guard; };
    const auto begin = memory_.begin() + static_cast<std::ptrdiff_t>(begin_);
    const auto end = begin + static_cast<std::ptrdiff_t>(bytes_);
    const auto width = static_cast<std::ptrdiff_t>(guard_bytes);
    return std::all_of(begin - width, begin, intact) && std::all_of(end, end + width, intact);
  }

 private:
  static constexpr std::size_t alignment = 64;
  std::vector<std::uint8_t> memory_;
  std::size_t bytes_;
  std::size_t begin_;
};

}  // namespace lockstep::test
