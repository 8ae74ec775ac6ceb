// SPDX-License-Identifier: Apache-2.0
// Dividing for avg and scaling for premul_sum, and narrowing for messages, by every target, against the reference, bit
// for bit; for 16-bit floats over all numbers that there are, which also shows their conversion in vectors.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "collectives/kernels/kernels.hpp"
#include "collectives/types.hpp"
#include "tests/collectives/kernels/kernels_data.hpp"

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

TEST_P(KernelMaps, DivideAndScale) {
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

TEST(ShortFloats, AllHalvesAreDividedAndScaled) { check_all(DataType::f16, all_short_floats()); }
TEST(ShortFloats, AllBfloatsAreDividedAndScaled) { check_all(DataType::bf16, all_short_floats()); }

// All upper halves of floats, with lower ones that round either way, stay, or are ties.
std::vector<float> floats_to_narrow() {
  std::vector<float> all;
  for (std::uint32_t upper = 0; upper < 65536; ++upper) {
    for (const std::uint32_t lower : {0U, 1U, 0x1000U, 0x3001U, 0x7fffU, 0x8000U, 0x8001U, 0xf000U, 0xffffU})
      all.push_back(std::bit_cast<float>(upper << 16U | lower));
  }
  return all;
}

template <class T>
void check_narrowing(WireFormat format, const std::vector<float>& given) {
  const std::size_t count = given.size();
  Bytes floats(count * 4);
  Bytes narrow(count * 2);
  Bytes rounded(count * 4);
  for (std::size_t i = 0; i < count; ++i) {
    const T one(std::isnan(given[i]) ? std::numeric_limits<float>::quiet_NaN() : given[i]);
    const auto back = static_cast<float>(one);
    std::memcpy(&floats[i * 4], &given[i], 4);
    std::memcpy(&narrow[i * 2], &one, 2);
    std::memcpy(&rounded[i * 4], &back, 4);
  }
  for (const KernelTable& table : tables()) {
    const WireKernel& kernel = table.wires[static_cast<std::size_t>(format)];
    for (const std::size_t shift : {0U, 1U, 6U}) {
      Place wide(floats.size(), shift + 2);
      Place short_ones(narrow.size(), shift);
      wide.fill(floats);
      short_ones.spoil();
      kernel.narrow(short_ones.data(), wide.data(), count);
      ASSERT_TRUE(short_ones.holds(narrow) && short_ones.is_guarded()) << table.target << ' ' << count;
      ASSERT_TRUE(wide.holds(floats) && wide.is_guarded()) << table.target << ' ' << count;
      kernel.round(wide.data(), count);
      ASSERT_TRUE(wide.holds(rounded) && wide.is_guarded()) << table.target << ' ' << count;
      wide.spoil();
      kernel.widen(wide.data(), short_ones.data(), count);
      ASSERT_TRUE(wide.holds(rounded) && wide.is_guarded()) << table.target << ' ' << count;
      ASSERT_TRUE(short_ones.holds(narrow)) << table.target << ' ' << count;
    }
  }
}

TEST(ShortFloats, MessagesRoundToNearest) {
  const std::vector<float> all = floats_to_narrow();
  ASSERT_NO_FATAL_FAILURE(check_narrowing<bf16>(WireFormat::bf16, all));
  ASSERT_NO_FATAL_FAILURE(check_narrowing<f16>(WireFormat::f16, all));
  for (std::ptrdiff_t count = 0; count < 70; ++count) {
    const std::vector<float> some(all.begin() + 150'000, all.begin() + 150'000 + count);
    ASSERT_NO_FATAL_FAILURE(check_narrowing<bf16>(WireFormat::bf16, some));
    ASSERT_NO_FATAL_FAILURE(check_narrowing<f16>(WireFormat::f16, some));
  }
}

// By way of the functions that the library's users call.
TEST(KernelMaps, TheMeanIsTheSumDivided) {
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
