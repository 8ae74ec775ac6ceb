// SPDX-License-Identifier: Apache-2.0
// Holds the times of work on a GPU as the host sees them, each by two numbers. Members choose between two paths by
// them; they are integers, because all members must compute the same times.
#pragma once

#include <cstddef>
#include <cstdint>

namespace lockstep::gpu {

// Predicts a time in ns: a fixed part and a part by bytes.
struct LinearCost {
  // Holds the time of the smallest work.
  std::uint32_t ns = 0;
  // Holds the time that each further MiB adds.
  std::uint32_t ns_per_mib = 0;
  // Return the time of a number of bytes in ns: ns + bytes * ns_per_mib / MiB. bytes_alone() leaves out the fixed part.
  constexpr std::uint64_t of(std::uint64_t bytes) const { return ns + bytes_alone(bytes); }
  constexpr std::uint64_t bytes_alone(std::uint64_t bytes) const {
    constexpr std::uint64_t most = std::uint64_t{1} << 48U;  // larger numbers could overflow below
    constexpr std::uint64_t mib = 1U << 20U;
    const std::uint64_t counted = bytes < most ? bytes : most;
    return counted / mib * ns_per_mib + counted % mib * ns_per_mib / mib;
  }
  bool operator==(const LinearCost&) const = default;
};

// Holds the times of one GPU; each includes the host's wait for the end. All zeros mean that nothing could be measured.
struct DeviceCosts {
  LinearCost launch;  // a kernel that combines, by bytes read and written
  LinearCost copy;    // a copy within the GPU's memory
  LinearCost down;    // a copy to pinned memory of the host
  LinearCost up;      // a copy from pinned memory of the host
  bool operator==(const DeviceCosts&) const = default;
};

}  // namespace lockstep::gpu
