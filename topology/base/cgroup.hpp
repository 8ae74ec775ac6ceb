// SPDX-License-Identifier: Apache-2.0
// What control groups grant and take: containers and batch systems give "2.5 cores" and so much memory that no
// processor mask shows. Both versions of control groups. `root` is "/", except in tests.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Cores' worth of time that the tightest group above this process grants; nothing when unlimited.
std::optional<double> cpu_quota(const std::string& root = "/");

// For how long groups of this process have been stopped because their time was used up, in microseconds, of the one
// that was stopped longest.
double throttled_us(const std::string& root = "/");

// Memory that may be taken without waking the killer: what is free, and what the groups leave.
std::uint64_t free_memory_bytes(const std::string& root = "/");

// cpu.max of version 2: "250000 100000" is 2.5; "max 100000" is nothing.
std::optional<double> parse_cpu_max(std::string_view line);

}  // namespace lockstep
