// SPDX-License-Identifier: Apache-2.0
// Holds float operations that are rounded one by one, and fast divisions with the exact bits of an ordinary division.
// The compilers of GPUs and of the host both take it. Only quotients use fused multiply-add; elsewhere it would change
// results.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#ifdef __CUDACC__
#define LOCKSTEP_BOTH __host__ __device__ inline
#else
#define LOCKSTEP_BOTH inline
#endif

namespace lockstep::gpu {

// Returns the same bits as another type of the same size.
template <class To, class From>
LOCKSTEP_BOTH To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// Define plus, times and over: single operations, each rounded to nearest, that a compiler does not fuse on a GPU.
#ifdef __CUDA_ARCH__
#define LOCKSTEP_ROUNDED(name, sign, intrinsic)                                    \
  LOCKSTEP_BOTH float name(float a, float b) { return __f##intrinsic##_rn(a, b); } \
  LOCKSTEP_BOTH double name(double a, double b) { return __d##intrinsic##_rn(a, b); }
#else
#define LOCKSTEP_ROUNDED(name, sign, intrinsic)                   \
  LOCKSTEP_BOTH float name(float a, float b) { return a sign b; } \
  LOCKSTEP_BOTH double name(double a, double b) { return a sign b; }
#endif
LOCKSTEP_ROUNDED(plus, +, add)
LOCKSTEP_ROUNDED(times, *, mul)
LOCKSTEP_ROUNDED(over, /, div)
#undef LOCKSTEP_ROUNDED

// Returns a * b + c, rounded once.
#ifdef __CUDA_ARCH__
LOCKSTEP_BOTH float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
LOCKSTEP_BOTH double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
#else
LOCKSTEP_BOTH float fused(float a, float b, float c) { return std::fma(a, b, c); }
LOCKSTEP_BOTH double fused(double a, double b, double c) { return std::fma(a, b, c); }
#endif

// Replaces any NaN by the one NaN that results have; returns other values as they are.
LOCKSTEP_BOTH float quiet(float value) { return value == value ? value : bits_as<float>(std::uint32_t{0x7fc00000}); }
LOCKSTEP_BOTH double quiet(double value) {
  return value == value ? value : bits_as<double>(std::uint64_t{0x7ff8000000000000});
}

// True if the sign bit is set, also of -0 and NaN.
LOCKSTEP_BOTH bool is_negative(float value) { return bits_as<std::uint32_t>(value) >> 31U != 0; }
LOCKSTEP_BOTH bool is_negative(double value) { return bits_as<std::uint64_t>(value) >> 63U != 0; }

// Holds a whole number that many elements are divided by; divisor_of() makes it once for all of them.
template <class T>
struct Divisor {
  T value;
  T reciprocal;
  bool is_small;  // true if quick_over() may use it
};
// Makes a divisor of a number other than 0. Numbers from 1 to 2^20 allow quick divisions.
template <class T>
LOCKSTEP_BOTH Divisor<T> divisor_of(std::int64_t number) {
  constexpr std::int64_t most = 1 << 20;
  const T value = static_cast<T>(number);
  return {value, over(T{1}, value), number > 0 && number <= most};
}

// True if the value is finite, and large enough that its quotient by a small divisor keeps all its places.
LOCKSTEP_BOTH bool is_usual(float value) {
  constexpr std::uint32_t least = 24;
  return (bits_as<std::uint32_t>(value) >> 23U & 0xffU) - least < 255 - least;
}
LOCKSTEP_BOTH bool is_usual(double value) {
  constexpr std::uint32_t least = 24;
  return (static_cast<std::uint32_t>(bits_as<std::uint64_t>(value) >> 52U) & 0x7ffU) - least < 2047 - least;
}

// Returns the bits of an ordinary division without its branches, and sets `is_right` to false if they may be wrong. It
// multiplies by the reciprocal and corrects the product twice by the exact remainder. The first turn comes to the
// quotient or a neighbour, the second to the quotient itself.
template <class T>
LOCKSTEP_BOTH T quick_over(T value, const Divisor<T>& divisor, bool& is_right) {
  T quotient = times(value, divisor.reciprocal);
  for (int turn = 0; turn < 2; ++turn)
    quotient = fused(fused(-quotient, divisor.value, value), divisor.reciprocal, quotient);
  is_right = is_right && divisor.is_small && (is_usual(value) || value == 0);
  return value == 0 ? value : quotient;
}

// Divides by a power of two; its reciprocal is exact.
template <class T>
LOCKSTEP_BOTH T exactly_over(T value, const Divisor<T>& divisor) {
  return times(value, divisor.reciprocal);
}

// Divides quickly if that is right, and by an ordinary division otherwise.
template <class T>
LOCKSTEP_BOTH T over(T value, const Divisor<T>& divisor) {
  bool is_right = true;
  const T quotient = quick_over(value, divisor, is_right);
  return is_right ? quotient : over(value, divisor.value);
}

// Says how results are divided. Each mode has kernels of its own, because a mode that needs more registers would slow
// down the others.
enum class DivisionMode {
  none,     // no division
  exactly,  // floats by a power of two: one multiplication
  by_any    // any other division
};

}  // namespace lockstep::gpu
