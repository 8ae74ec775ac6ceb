// SPDX-License-Identifier: Apache-2.0
// Provides the division after a sum (avg) and the product before it (premul_sum) for integers. They take one number at
// a time, since processors have no vector division of integers.
#include <cstring>
#include <limits>

#include "collectives/kernels/table.hpp"

namespace lockstep {
namespace {

template <class T>
T load(const void* source, std::size_t index) {
  T value;
  std::memcpy(&value, static_cast<const unsigned char*>(source) + index * sizeof(T), sizeof(T));
  return value;
}

template <class T>
void store(void* target, std::size_t index, T value) {
  std::memcpy(static_cast<unsigned char*>(target) + index * sizeof(T), &value, sizeof(T));
}

// Divides in 64 bits for all types, since the divisor may exceed the type's range.
template <class T>
void divide_integers(void* target, const void* source, std::size_t count, std::int64_t divisor) {
  using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
  const auto by = static_cast<Wide>(divisor);
  for (std::size_t i = 0; i < count; ++i) store(target, i, static_cast<T>(load<T>(source, i) / by));
}

// Rounds towards zero, and clamps to the type's range. NaN, which only a factor that is no number gives, becomes 0.
template <class T>
T clamped(double value) {
  constexpr auto least = static_cast<double>(std::numeric_limits<T>::min());
  // One above the greatest number is a power of two, which double can represent; the greatest number itself may not be.
  constexpr double above = 2.0 * static_cast<double>(T{1} << (std::numeric_limits<T>::digits - 1));
  if (!(value == value)) return 0;
  if (value >= above) return std::numeric_limits<T>::max();
  if (value <= least) return std::numeric_limits<T>::min();
  return static_cast<T>(value);
}

template <class T>
void scale_integers(void* target, const void* source, std::size_t count, double factor) {
  for (std::size_t i = 0; i < count; ++i)
    store(target, i, clamped<T>(static_cast<double>(load<T>(source, i)) * factor));
}

template <class T>
Maps maps_of() {
  return {&divide_integers<T>, &scale_integers<T>};
}

}  // namespace

Maps integer_maps(DataType type) {
  switch (type) {
    case DataType::i8:
      return maps_of<std::int8_t>();
    case DataType::i16:
      return maps_of<std::int16_t>();
    case DataType::i32:
      return maps_of<std::int32_t>();
    case DataType::i64:
      return maps_of<std::int64_t>();
    case DataType::u8:
      return maps_of<std::uint8_t>();
    case DataType::u16:
      return maps_of<std::uint16_t>();
    case DataType::u32:
      return maps_of<std::uint32_t>();
    case DataType::u64:
      return maps_of<std::uint64_t>();
    default:
      return {};
  }
}

}  // namespace lockstep
