// SPDX-License-Identifier: Apache-2.0
// Dividing for avg and scaling for premul_sum, by every target, against the reference, bit for bit; for 16-bit
// floats over all numbers that there are, which also shows their conversion in vectors.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "collectives/kernels/kernels.hpp"
#include "tests/collectives/kernels_data.hpp"

namespace lockstep {
namespace {

using test::Bytes;
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
template <class Map>
void check(DataType type, const Bytes& values, const Bytes& expected, const Map& map) {
  const std::size_t count = values.size() / size_of(type);
  for (const KernelTable& table : tables()) {
    const Maps& maps = table.maps[static_cast<std::size_t>(type)];
    for (const bool streams : {false, true}) {
      const Streaming streaming(streams);
      for (const std::size_t shift : {0U, 1U, 6U, 16U}) {
        Place source(values.size(), (shift + 3) % 8);
        Place target(values.size(), shift);
        source.fill(values);
        target.spoil();
        map(maps, target.data(), source.data(), count);
        ASSERT_TRUE(target.holds(expected) && target.is_guarded()) << table.target << ' ' << to_string(type);
        ASSERT_TRUE(source.holds(values) && source.is_guarded()) << table.target << ' ' << to_string(type);
        map(maps, source.data(), source.data(), count);
        ASSERT_TRUE(source.holds(expected) && source.is_guarded()) << table.target << ' ' << to_string(type);
      }
    }
  }
}

void check_all(DataType type, const Bytes& values) {
  const test::Reference reference = test::reference_of(type);
  for (const std::int64_t by : divisors) {
    const auto map = [by](const Maps& maps, void* to, void* from, std::size_t n) { maps.divide(to, from, n, by); };
    ASSERT_NO_FATAL_FAILURE(check(type, values, reference.divide(values, by), map)) << "divisor " << by;
  }
  for (const double by : factors) {
    const auto map = [by](const Maps& maps, void* to, void* from, std::size_t n) { maps.scale(to, from, n, by); };
    ASSERT_NO_FATAL_FAILURE(check(type, values, reference.scale(values, by), map)) << "factor " << by;
  }
}

class KernelMaps : public testing::TestWithParam<DataType> {};

TEST_P(KernelMaps, divide_and_scale) {
  Random random(5);
  const test::Reference reference = test::reference_of(GetParam());
  for (std::size_t length = 0; length <= 130; length += length < 20 ? 1 : 11)
    ASSERT_NO_FATAL_FAILURE(check_all(GetParam(), reference.any_values(random, length, 4)));
  ASSERT_NO_FATAL_FAILURE(check_all(GetParam(), reference.any_values(random, 4099, 4)));
}

INSTANTIATE_TEST_SUITE_P(All, KernelMaps, testing::ValuesIn(arithmetic_types()),
                         [](const auto& each) { return std::string(to_string(each.param)); });

Bytes all_short_floats() {
  Bytes all;
  for (int bits = 0; bits < 65536; ++bits) {
    all.push_back(static_cast<std::uint8_t>(bits % 256));
    all.push_back(static_cast<std::uint8_t>(bits / 256));
  }
  return all;
}

TEST(ShortFloats, all_halves_are_divided_and_scaled) { check_all(DataType::f16, all_short_floats()); }
TEST(ShortFloats, all_bfloats_are_divided_and_scaled) { check_all(DataType::bf16, all_short_floats()); }

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
