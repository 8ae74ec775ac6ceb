// SPDX-License-Identifier: Apache-2.0
// How long work on a GPU takes for the host that waits for it, as two numbers: which of two ways is the shorter is
// reckoned from them. Whole numbers, because all members must reckon alike.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::gpu {

struct LinearCost {
  std::uint32_t ns = 0;          // of the smallest
  std::uint32_t ns_per_mib = 0;  // and what more bytes add
  constexpr std::uint64_t of(std::uint64_t bytes) const { return ns + bytes_alone(bytes); }
  constexpr std::uint64_t bytes_alone(std::uint64_t bytes) const {
    constexpr std::uint64_t most = std::uint64_t{1} << 48U;  // what follows must not wrap around
    constexpr std::uint64_t mib = 1U << 20U;
    const std::uint64_t some = bytes < most ? bytes : most;
    return some / mib * ns_per_mib + some % mib * ns_per_mib / mib;
  }
  bool operator==(const LinearCost&) const = default;
};

// Each with the wait for its end.
struct DeviceCosts {
  LinearCost launch;  // a kernel that combines, by bytes read and written
  LinearCost copy;    // within a GPU's memory
  LinearCost down;    // to pinned memory of the host
  LinearCost up;      // from there
  bool operator==(const DeviceCosts&) const = default;
};

}  // namespace lockstep::gpu
