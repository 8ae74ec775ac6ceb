// SPDX-License-Identifier: Apache-2.0
// Provides the table [type][operation] of reductions, in vector instructions that are chosen at run time. After the
// look-up, no code depends on the type. The edge cases (NaN, infinities, signed zero, integer overflow) are the same on
// every processor. They are defined in docs/reductions.md. Buffers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collectives/spec.hpp"

namespace lockstep {

// Holds the functions of one reduction. `count` counts elements, and may be 0.
struct Kernel {
  // Computes target[i] = left[i] op right[i]. The target may be exactly left or right; otherwise no buffers overlap.
  void (*two)(void* target, const void* left, const void* right, std::size_t count) = nullptr;
  // Computes target[i] = sources[0][i] op sources[1][i] op ... from left to right, in one pass. The target may be
  // exactly one of the sources, and sources may be equal. Results of 16-bit floats are kept in 32 bits until the end,
  // and rounded once. `number` is at least 1; a single source is copied unchanged.
  void (*many)(void* target, const void* const* sources, int number, std::size_t count) = nullptr;
};

// Returns the kernel, which lives until the process ends. Returns null if the operation is not defined for the type,
// and for the user's own operation. The kernel of avg and premul_sum is that of sum; divide() and scale() make the
// difference.
const Kernel* find_kernel(DataType type, ReduceOp op);

// Computes target[i] = source[i] / divisor, for avg. Floats are divided in their own precision (16-bit floats in 32
// bits, then rounded), complex numbers by components. Integers round towards zero. The divisor is positive. The target
// may be the source. Throws Error internal for types that have no sum.
void divide(DataType type, void* target, const void* source, std::size_t count, std::int64_t divisor);
// Computes target[i] = source[i] * factor, for premul_sum. The product is in double for f64, c128 and integers, in
// float otherwise. Integers are rounded towards zero and clamped to the type; NaN gives 0. The target may be the
// source. Throws as divide() does.
void scale(DataType type, void* target, const void* source, std::size_t count, double factor);

// Converts between 32-bit floats and the 16-bit floats of messages. `narrow` rounds to nearest, ties to even, and every
// NaN becomes the quiet one. `widen` is exact. `round` does both in place.
struct WireKernel {
  void (*narrow)(void* target, const void* floats, std::size_t count) = nullptr;
  void (*widen)(void* floats, const void* source, std::size_t count) = nullptr;
  void (*round)(void* floats, std::size_t count) = nullptr;
};

// Returns the kernel of a format. Throws Error internal for as_is.
const WireKernel& wire_kernel(WireFormat format);

// Returns the name of the vector instructions in use, such as "AVX2".
std::string_view kernel_target();

}  // namespace lockstep
