// SPDX-License-Identifier: Apache-2.0
// Converts f16 and bf16 by integer arithmetic alone. The bits are the same on every processor, regardless of its
// rounding mode and its treatment of subnormal numbers. The functions convert one number at a time; the kernels have
// their own for vectors, and the tests compare the two.
#include "collectives/types.hpp"

namespace lockstep::detail {
namespace {

constexpr std::uint32_t float_infinity = 0x7f800000;
constexpr std::uint32_t float_sign = 0x80000000;
constexpr std::uint32_t half_infinity = 0x7c00;
constexpr std::uint32_t half_quiet = 0x0200;  // makes a NaN quiet, and so keeps it from becoming infinity
constexpr std::uint32_t bfloat_quiet = 0x0040;

// Returns value / 2^places, rounded to nearest, ties to even.
constexpr std::uint32_t shift_rounded(std::uint32_t value, int places) {
  const std::uint32_t half = std::uint32_t{1} << (places - 1);
  const std::uint32_t odd = (value >> places) & 1U;
  return (value + (half - 1U) + odd) >> places;
}

// Rounds a float without its sign, below 2^16, to a half. A mantissa that is rounded up carries into the exponent. That
// is right at every border: to the first normal number, to the next power of two, to infinity.
constexpr std::uint32_t round_to_half(std::uint32_t bits) {
  constexpr std::uint32_t smallest_normal = 113U << 23U;  // 2^-14
  if (bits >= smallest_normal) return shift_rounded(bits - (112U << 23U), 13);
  // A subnormal is counted in units of 2^-24. A float below 2^-25 is nearer to zero than to one unit.
  const std::uint32_t exponent = bits >> 23U;
  if (exponent < 102) return 0;
  const std::uint32_t mantissa = (bits & 0x7fffffU) | 0x800000U;
  return shift_rounded(mantissa, static_cast<int>(126U - exponent));
}

}  // namespace

float half_to_float(std::uint16_t bits) {
  const std::uint32_t sign = (bits & 0x8000U) << 16U;
  const std::uint32_t exponent = (bits >> 10U) & 0x1fU;
  std::uint32_t mantissa = bits & 0x3ffU;
  if (exponent == 31) return std::bit_cast<float>(sign | float_infinity | (mantissa << 13U));
  if (exponent != 0) return std::bit_cast<float>(sign | ((exponent + 112U) << 23U) | (mantissa << 13U));
  if (mantissa == 0) return std::bit_cast<float>(sign);
  // A subnormal half is a normal float: its first bit moves to the implied place.
  std::uint32_t shifts = 0;
  for (; (mantissa & 0x400U) == 0; mantissa <<= 1U) ++shifts;
  return std::bit_cast<float>(sign | ((113U - shifts) << 23U) | ((mantissa & 0x3ffU) << 13U));
}

std::uint16_t half_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  const std::uint32_t sign = (bits & float_sign) >> 16U;
  const std::uint32_t magnitude = bits & ~float_sign;
  std::uint32_t half = half_infinity;
  if (magnitude > float_infinity)
    half = half_infinity | half_quiet | ((magnitude >> 13U) & 0x3ffU);
  else if (magnitude < (143U << 23U))  // 2^16
    half = round_to_half(magnitude);
  return static_cast<std::uint16_t>(sign | half);
}

float bfloat_to_float(std::uint16_t bits) { return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16U); }

std::uint16_t bfloat_from_float(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & ~float_sign) > float_infinity) return static_cast<std::uint16_t>((bits >> 16U) | bfloat_quiet);
  return static_cast<std::uint16_t>(shift_rounded(bits, 16));
}

}  // namespace lockstep::detail
