// SPDX-License-Identifier: Apache-2.0
// Reads the limits that control groups set. Containers and batch systems grant "2.5 cores", and limit memory, and no
// processor mask shows either. Both versions of control groups are known. `root` is "/", except in tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Returns the CPU time that the tightest group of this process grants, in cores. Returns nothing if it is unlimited.
std::optional<double> cpu_quota(const std::string& root = "/");

// Returns for how many microseconds groups of this process have been stopped since they used up their quota. Of
// several groups, the one that was stopped longest counts.
double throttled_us(const std::string& root = "/");

inline constexpr std::uint64_t unlimited_bytes = ~std::uint64_t{};
// Returns the bytes that this process may take before the kernel ends processes for lack of memory. That is the
// least of the memory available and the rest of each group's limit, or unlimited_bytes if neither is known.
std::uint64_t free_memory_bytes(const std::string& root = "/");

// Parses `cpu.max` of version 2: "250000 100000" is 2.5 cores; "max 100000" is nothing, for no limit.
std::optional<double> parse_cpu_max(std::string_view line);

}  // namespace lockstep
