// SPDX-License-Identifier: Apache-2.0
// A function of a program's own, for the host and as a kernel: one that must not change the order of what it combines.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::test {

// x becomes a * x + b, modulo 2^32; two of them after each other are one.
struct Affine {
  std::uint32_t a;
  std::uint32_t b;
  bool operator==(const Affine&) const = default;
};

constexpr Affine after(const Affine& left, const Affine& right) {
  return {left.a * right.a, left.a * right.b + left.b};
}

// Into a stream of the current GPU: out[i] becomes after(left[i], right[i]). With more threads in a block than any GPU
// has it is refused.
void launch_after(const Affine* left, const Affine* right, Affine* out, std::size_t count, void* stream,
                  unsigned threads = 256);

}  // namespace lockstep::test
