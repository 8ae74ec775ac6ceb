// SPDX-License-Identifier: Apache-2.0
// Values and reference, for every type once.
#include "tests/collectives/kernels/kernels_data.hpp"

#include <gtest/gtest.h>

#include "collectives/kernels/vectors.hpp"
// Below vectors.hpp, which chooses the targets.
#include <hwy/targets.h>

#include <array>
#include <bit>
#include <complex>
#include <limits>
#include <type_traits>

#include "collectives/types.hpp"
#include "tests/collectives/kernels/reference.hpp"

namespace lockstep::test {
namespace {

using reference::Flag;

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

template <class T>
T any_value(Random& random, unsigned rare) {
  const bool edge = random() % rare == 0;
  if constexpr (std::is_same_v<T, Flag>) {
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
T value_at(const Bytes& bytes, std::size_t index) {
  std::array<std::uint8_t, sizeof(T)> raw;
  std::memcpy(raw.data(), bytes.data() + index * sizeof(T), sizeof(T));
  return std::bit_cast<T>(raw);
}

template <class T>
void set_value(Bytes& bytes, std::size_t index, const T& value) {
  std::memcpy(bytes.data() + index * sizeof(T), &value, sizeof(T));
}

template <class T>
Bytes any_values(Random& random, std::size_t count, unsigned rare) {
  Bytes values(count * sizeof(T));
  for (std::size_t i = 0; i < count; ++i) set_value(values, i, any_value<T>(random, rare));
  return values;
}

template <class T>
Bytes reduce(ReduceOp op, const std::vector<Bytes>& sources) {
  Bytes result(sources[0].size());
  std::vector<T> column(sources.size());
  for (std::size_t i = 0; i < result.size() / sizeof(T); ++i) {
    for (std::size_t k = 0; k < sources.size(); ++k) column[k] = value_at<T>(sources[k], i);
    set_value(result, i, reference::reduce<T>(op, column));
  }
  return result;
}

template <class T>
Bytes divide(const Bytes& values, std::int64_t divisor) {
  Bytes result(values.size());
  for (std::size_t i = 0; i < values.size() / sizeof(T); ++i)
    set_value(result, i, reference::divide(value_at<T>(values, i), divisor));
  return result;
}

template <class T>
Bytes scale(const Bytes& values, double factor) {
  Bytes result(values.size());
  for (std::size_t i = 0; i < values.size() / sizeof(T); ++i)
    set_value(result, i, reference::scale(value_at<T>(values, i), factor));
  return result;
}

template <class T>
Reference make() {
  Reference made{&any_values<T>, &reduce<T>, nullptr, nullptr};
  if constexpr (!reference::LocatedValue<T> && !std::is_same_v<T, Flag>) {
    made.divide = &divide<T>;
    made.scale = &scale<T>;
  }
  return made;
}

std::vector<KernelTable> make_tables() {
  std::vector<KernelTable> made;
  const auto targets = hwy::SupportedAndGeneratedTargets();
  for (auto target = targets.rbegin(); target != targets.rend(); ++target) {
    hwy::SetSupportedTargetsForTest(*target);
    hwy::GetChosenTarget().Update(hwy::SupportedTargets());
    made.push_back(make_kernel_table());
    EXPECT_EQ(made.back().target, hwy::TargetName(*target));
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return made;
}

}  // namespace

Reference reference_of(DataType type) {
  switch (type) {
    case DataType::i8:
      return make<std::int8_t>();
    case DataType::i16:
      return make<std::int16_t>();
    case DataType::i32:
      return make<std::int32_t>();
    case DataType::i64:
      return make<std::int64_t>();
    case DataType::u8:
      return make<std::uint8_t>();
    case DataType::u16:
      return make<std::uint16_t>();
    case DataType::u32:
      return make<std::uint32_t>();
    case DataType::u64:
      return make<std::uint64_t>();
    case DataType::f16:
      return make<f16>();
    case DataType::bf16:
      return make<bf16>();
    case DataType::f32:
      return make<float>();
    case DataType::f64:
      return make<double>();
    case DataType::c64:
      return make<std::complex<float>>();
    case DataType::c128:
      return make<std::complex<double>>();
    case DataType::boolean:
      return make<Flag>();
    case DataType::located_i32:
      return make<Located<std::int32_t>>();
    case DataType::located_i64:
      return make<Located<std::int64_t>>();
    case DataType::located_f32:
      return make<Located<float>>();
    case DataType::located_f64:
      return make<Located<double>>();
    case DataType::opaque:
      break;
  }
  return {};
}

const std::vector<KernelTable>& tables() {
  static const std::vector<KernelTable> made = make_tables();
  return made;
}

std::vector<DataType> all_types() {
  std::vector<DataType> types;
  for (int t = 0; t < data_type_count; ++t) {
    if (static_cast<DataType>(t) != DataType::opaque) types.push_back(static_cast<DataType>(t));
  }
  return types;
}

}  // namespace lockstep::test
