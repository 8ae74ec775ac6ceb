// SPDX-License-Identifier: Apache-2.0
// The conversions of 16-bit floats, over all that there are and over the borders between them.
#include "collectives/types.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <limits>

namespace lockstep {
namespace {

static_assert(data_type_of<std::int8_t> == DataType::i8 && data_type_of<std::uint64_t> == DataType::u64);
static_assert(data_type_of<const float> == DataType::f32 && data_type_of<bf16> == DataType::bf16);
static_assert(data_type_of<bool> == DataType::boolean && data_type_of<std::complex<double>> == DataType::c128);
static_assert(data_type_of<Located<float>> == DataType::located_f32 && sizeof(Located<double>) == 16);

// Sign, exponent and mantissa by their definition.
double value_of(int bits, int mantissa_bits, int bias) {
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int exponent = (bits & 0x7fff) >> mantissa_bits;
  const int implied = exponent == 0 ? 0 : 1 << mantissa_bits;
  const double magnitude = std::ldexp(implied + mantissa, std::max(exponent, 1) - bias - mantissa_bits);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

template <class T>
std::uint16_t bits_of(double value) {
  return T(static_cast<float>(value)).bits;
}

template <class T>
void all_come_back(int mantissa_bits, int bias) {
  const int infinity = 0x7fff & ~((1 << mantissa_bits) - 1);
  for (int bits = 0; bits < 65536; ++bits) {
    T value;
    value.bits = static_cast<std::uint16_t>(bits);
    const auto wide = static_cast<float>(value);
    const int magnitude = bits & 0x7fff;
    if (magnitude > infinity) {
      ASSERT_TRUE(std::isnan(wide)) << bits;
      ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << bits;
      const int back = T(wide).bits;
      ASSERT_GT(back & 0x7fff, infinity) << bits;
      ASSERT_EQ(back & 0x8000, bits & 0x8000) << bits;
      continue;
    }
    if (magnitude == infinity)
      ASSERT_TRUE(std::isinf(wide)) << bits;
    else
      ASSERT_EQ(static_cast<double>(wide), value_of(bits, mantissa_bits, bias)) << bits;
    ASSERT_EQ(std::signbit(wide), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(T(wide).bits, bits);
  }
}

// Between each number and the next larger one, infinity last: the middle goes to the even one, and what is nearer
// to one of them goes there. Down to the float next to the middle.
template <class T>
void borders_are_right(int mantissa_bits, int bias) {
  const int infinity = 0x7fff & ~((1 << mantissa_bits) - 1);
  for (int low = 0; low < infinity; ++low) {
    const double middle = (value_of(low, mantissa_bits, bias) + value_of(low + 1, mantissa_bits, bias)) / 2;
    const auto wide = static_cast<float>(middle);
    ASSERT_EQ(static_cast<double>(wide), middle);
    const int even = low + low % 2;
    const float above = std::nextafter(wide, std::numeric_limits<float>::infinity());
    ASSERT_EQ(bits_of<T>(middle), even) << low;
    ASSERT_EQ(bits_of<T>(std::nextafter(wide, 0.0F)), low) << low;
    ASSERT_EQ(bits_of<T>(above), low + 1) << low;
    ASSERT_EQ(bits_of<T>(-middle), even | 0x8000) << low;
    ASSERT_EQ(bits_of<T>(-above), (low + 1) | 0x8000) << low;
  }
}

TEST(Types, EveryHalfComesBack) { all_come_back<f16>(10, 15); }
TEST(Types, EveryBfloatComesBack) { all_come_back<bf16>(7, 127); }
TEST(Types, HalvesRoundToTheNearest) { borders_are_right<f16>(10, 15); }
TEST(Types, BfloatsRoundToTheNearest) { borders_are_right<bf16>(7, 127); }

TEST(Types, OverflowAndUnderflowAsIeeeSays) {
  EXPECT_EQ(f16(65519.0F).bits, 0x7bff);
  EXPECT_EQ(f16(65520.0F).bits, 0x7c00);
  EXPECT_EQ(f16(std::numeric_limits<float>::max()).bits, 0x7c00);
  EXPECT_EQ(f16(-std::numeric_limits<float>::infinity()).bits, 0xfc00);
  EXPECT_EQ(f16(std::numeric_limits<float>::denorm_min()).bits, 0);
  EXPECT_EQ(f16(-std::numeric_limits<float>::min()).bits, 0x8000);
  EXPECT_EQ(bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(bf16(std::numeric_limits<float>::denorm_min()).bits, 0);
}

TEST(Types, ASignallingNanDoesNotBecomeInfinity) {
  const auto signalling = std::bit_cast<float>(std::uint32_t{0x7f800001});
  EXPECT_EQ(detail::half_from_float(signalling), 0x7e00);
  EXPECT_EQ(detail::bfloat_from_float(signalling), 0x7fc0);
}

}  // namespace
}  // namespace lockstep
