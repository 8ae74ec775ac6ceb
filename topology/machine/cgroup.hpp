// SPDX-License-Identifier: Apache-2.0
// How much processor time the control group grants: containers and batch systems give "2.5 cores" that
// no processor mask shows. Both versions of control groups.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

// Cores' worth of time that the tightest group above this process grants; nothing when unlimited.
// `root` is "/", except in tests.
std::optional<double> cpu_quota(const std::string& root = "/");

// cpu.max of version 2: "250000 100000" is 2.5; "max 100000" is nothing.
std::optional<double> parse_cpu_max(std::string_view line);

}  // namespace lockstep
