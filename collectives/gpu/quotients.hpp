// SPDX-License-Identifier: Apache-2.0
// Float operations that are rounded by themselves, and quotients with the bits of a division that a GPU finds sooner;
// for the compilers of GPUs and of the host. Nothing is fused but what a quotient is found by.
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

template <class To, class From>
LOCKSTEP_BOTH To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// One operation, rounded to nearest by itself.
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

// a * b + c, rounded once.
#ifdef __CUDA_ARCH__
LOCKSTEP_BOTH float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
LOCKSTEP_BOTH double fused(double a, double b, double c) { return __fma_rn(a, b, c); }
#else
LOCKSTEP_BOTH float fused(float a, float b, float c) { return std::fma(a, b, c); }
LOCKSTEP_BOTH double fused(double a, double b, double c) { return std::fma(a, b, c); }
#endif

// The one NaN of results.
LOCKSTEP_BOTH float quiet(float value) { return value == value ? value : bits_as<float>(std::uint32_t{0x7fc00000}); }
LOCKSTEP_BOTH double quiet(double value) {
  return value == value ? value : bits_as<double>(std::uint64_t{0x7ff8000000000000});
}

LOCKSTEP_BOTH bool is_negative(float value) { return bits_as<std::uint32_t>(value) >> 31U != 0; }
LOCKSTEP_BOTH bool is_negative(double value) { return bits_as<std::uint64_t>(value) >> 63U != 0; }

// A whole number that many elements are divided by, made once for all of them.
template <class T>
struct Divisor {
  T value;
  T reciprocal;
  bool is_small;
};
template <class T>
LOCKSTEP_BOTH Divisor<T> divisor_of(std::int64_t number) {
  constexpr std::int64_t most = 1 << 20;
  const T value = static_cast<T>(number);
  return {value, over(T{1}, value), number > 0 && number <= most};
}

// Not so small that its quotient by a small number loses places, and neither infinite nor NaN.
LOCKSTEP_BOTH bool is_usual(float value) {
  constexpr std::uint32_t least = 24;
  return (bits_as<std::uint32_t>(value) >> 23U & 0xffU) - least < 255 - least;
}
LOCKSTEP_BOTH bool is_usual(double value) {
  constexpr std::uint32_t least = 24;
  return (static_cast<std::uint32_t>(bits_as<std::uint64_t>(value) >> 52U) & 0x7ffU) - least < 2047 - least;
}

// The bits of a division for nearly all values, without its branches; otherwise `is_right` becomes false. What the
// product with the reciprocal leaves is known without an error and corrects it, the first time to the quotient or its
// neighbour, the second time to the quotient itself.
template <class T>
LOCKSTEP_BOTH T quick_over(T value, const Divisor<T>& divisor, bool& is_right) {
  T quotient = times(value, divisor.reciprocal);
  for (int turn = 0; turn < 2; ++turn)
    quotient = fused(fused(-quotient, divisor.value, value), divisor.reciprocal, quotient);
  is_right = is_right && divisor.is_small && (is_usual(value) || value == 0);
  return value == 0 ? value : quotient;
}

// By a power of two, whose reciprocal is no other number than it should be.
template <class T>
LOCKSTEP_BOTH T exactly_over(T value, const Divisor<T>& divisor) {
  return times(value, divisor.reciprocal);
}

template <class T>
LOCKSTEP_BOTH T over(T value, const Divisor<T>& divisor) {
  bool is_right = true;
  const T quotient = quick_over(value, divisor, is_right);
  return is_right ? quotient : over(value, divisor.value);
}

// How results are divided: kernels are made for each, since what one needs of a processor the others would pay for.
enum class DivisionMode {
  none,
  exactly,  // floats by a power of two
  by_any
};

}  // namespace lockstep::gpu
