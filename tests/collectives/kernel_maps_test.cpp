// SPDX-License-Identifier: Apache-2.0
// Dividing for avg and scaling for premul_sum, by every target, against the reference, bit for bit; for 16-bit
// floats over all numbers that there are, which also shows their conversion in vectors.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "collectives/kernels/kernels.hpp"
#include "tests/collectives/kernels_data.hpp"
#include "tests/collectives/kernels_targets.hpp"

namespace lockstep {
namespace {

using test::Place;
using test::Random;
using test::Streaming;
using test::tables;

constexpr std::int64_t large = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t divisors[] = {1, 2, 3, 7, 128, 300, 65536, 1000003, (std::int64_t{1} << 40) + 1, large};
const double factors[] = {1.0, 0.0, -1.0, 0.5, 1.0 / 3, 0.1, -2.75, 1e10, 1e300, 1e-300, std::nan(""), INFINITY};

std::vector<DataType> arithmetic_types() {
  std::vector<DataType> types = test::all_types();
  std::erase_if(types, [](DataType type) { return !is_defined(ReduceOp::avg, type); });
  return types;
}

// Applies `map` (of a table's entry for the type) by every target, streamed and not, in place and not.
template <class T, class Map>
void check(DataType type, const std::vector<T>& values, const std::vector<T>& expected, const Map& map) {
  const std::size_t bytes = values.size() * sizeof(T);
  for (const KernelTable& table : tables()) {
    const Maps& maps = table.maps[static_cast<std::size_t>(type)];
    for (const bool streams : {false, true}) {
      const Streaming streaming(streams);
      for (const std::size_t shift : {0U, 1U, 6U, 16U}) {
        Place source(bytes, (shift + 3) % 8);
        Place target(bytes, shift);
        source.fill(values.data());
        target.spoil();
        map(maps, target.data(), source.data(), values.size());
        ASSERT_TRUE(target.holds(expected.data()) && target.is_guarded()) << table.target << ' ' << to_string(type);
        ASSERT_TRUE(source.holds(values.data()) && source.is_guarded()) << table.target << ' ' << to_string(type);
        map(maps, source.data(), source.data(), values.size());
        ASSERT_TRUE(source.holds(expected.data()) && source.is_guarded()) << table.target << ' ' << to_string(type);
      }
    }
  }
}

template <class T>
void check_all(DataType type, const std::vector<T>& values) {
  std::vector<T> expected(values.size());
  for (const std::int64_t divisor : divisors) {
    std::ranges::transform(values, expected.begin(), [&](T value) { return reference::divide(value, divisor); });
    ASSERT_NO_FATAL_FAILURE(
        check(type, values, expected,
              [&](const Maps& maps, void* to, void* from, std::size_t n) { maps.divide(to, from, n, divisor); }))
        << "divisor " << divisor;
  }
  for (const double factor : factors) {
    std::ranges::transform(values, expected.begin(), [&](T value) { return reference::scale(value, factor); });
    ASSERT_NO_FATAL_FAILURE(
        check(type, values, expected,
              [&](const Maps& maps, void* to, void* from, std::size_t n) { maps.scale(to, from, n, factor); }))
        << "factor " << factor;
  }
}

// The types without a map never come here.
template <class T>
constexpr bool is_arithmetic = !reference::LocatedValue<T> && !std::is_same_v<T, reference::Flag>;

class KernelMaps : public testing::TestWithParam<DataType> {};

TEST_P(KernelMaps, divide_and_scale) {
  test::with_type(GetParam(), [](auto zero) {
    using T = decltype(zero);
    if constexpr (is_arithmetic<T>) {
      Random random(5);
      for (std::size_t length = 0; length <= 130; length += length < 20 ? 1 : 11)
        ASSERT_NO_FATAL_FAILURE(check_all(GetParam(), test::any_values<T>(random, length, 4)));
      ASSERT_NO_FATAL_FAILURE(check_all(GetParam(), test::any_values<T>(random, 4099, 4)));
    }
  });
}

INSTANTIATE_TEST_SUITE_P(All, KernelMaps, testing::ValuesIn(arithmetic_types()),
                         [](const auto& each) { return std::string(to_string(each.param)); });

template <class T>
std::vector<T> all_of() {
  std::vector<T> all(65536);
  for (std::size_t i = 0; i < all.size(); ++i) all[i].bits = static_cast<std::uint16_t>(i);
  return all;
}

TEST(ShortFloats, all_halves_are_divided_and_scaled) { check_all(DataType::f16, all_of<f16>()); }
TEST(ShortFloats, all_bfloats_are_divided_and_scaled) { check_all(DataType::bf16, all_of<bf16>()); }

// By way of the functions that the library's users call.
TEST(KernelMaps, the_mean_is_the_sum_divided) {
  const std::vector<std::int32_t> sums = {10, -10, 3, -3, 0};
  std::vector<std::int32_t> means(sums.size());
  divide(DataType::i32, means.data(), sums.data(), sums.size(), 4);
  EXPECT_EQ(means, (std::vector<std::int32_t>{2, -2, 0, 0, 0}));  // towards zero
  std::vector<std::uint8_t> bytes = {100, 200, 255};
  scale(DataType::u8, bytes.data(), bytes.data(), bytes.size(), 1.29);
  EXPECT_EQ(bytes, (std::vector<std::uint8_t>{129, 255, 255}));
}

}  // namespace
}  // namespace lockstep
