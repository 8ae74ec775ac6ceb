// SPDX-License-Identifier: Apache-2.0
// The table [type][operation] of reductions, by vector instructions that are chosen at run time. After the
// look-up nothing knows the type any more. What happens at the edges (NaN, infinities, signed zero, integer
// overflow) is said in docs/reductions.md and is the same on every processor. Buffers need no alignment.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "collectives/spec.hpp"

namespace lockstep {

struct Kernel {
  // target[i] = left[i] op right[i]. The target may be exactly left or right; otherwise nothing overlaps.
  void (*two)(void* target, const void* left, const void* right, std::size_t count) = nullptr;
  // target[i] = sources[0][i] op sources[1][i] op ... from left to right, in one pass. The target may be exactly one of
  // the sources, which may also be the same among themselves. 16-bit floats are kept in 32 bits until the end, and
  // rounded once. `number` is at least 1; one source is copied as it is.
  void (*many)(void* target, const void* const* sources, int number, std::size_t count) = nullptr;
};

// avg and premul_sum are those of sum: what makes them differ is divide() and scale(). Nothing where the
// operation is not defined for the type, and for the user's own.
const Kernel* find_kernel(DataType type, ReduceOp op);

// target[i] = source[i] / divisor, for avg: floats in their own precision (16 bits: in 32, then rounded), complex
// numbers by components, integers towards zero. The divisor is positive. May be in place. Throws for types that have
// no sum.
void divide(DataType type, void* target, const void* source, std::size_t count, std::int64_t divisor);
// target[i] = source[i] * factor, for premul_sum: computed in double for f64, c128 and integers (which are rounded
// towards zero and clamped to the type; NaN gives 0), in float otherwise. May be in place. Throws as divide().
void scale(DataType type, void* target, const void* source, std::size_t count, double factor);

// 32-bit floats to the 16-bit ones in which messages carry them (to nearest, ties to even; every NaN becomes the quiet
// one) and back, which is exact; and to those and back in place.
struct WireKernel {
  void (*narrow)(void* target, const void* floats, std::size_t count) = nullptr;
  void (*widen)(void* floats, const void* source, std::size_t count) = nullptr;
  void (*round)(void* floats, std::size_t count) = nullptr;
};

// Of another format than as_is.
const WireKernel& wire_kernel(WireFormat format);

// "AVX2": the vector instructions in use here.
std::string_view kernel_target();

}  // namespace lockstep
