// SPDX-License-Identifier: Apache-2.0
// The one unit of time in sources, and its text. Headers that users include take a TimeSpan instead.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>

namespace lockstep {

using Duration = std::chrono::nanoseconds;

// Parses "10", "10s", "500ms", "2m", "1h"; a bare number is seconds. Takes nothing negative, and at most 1e9 s.
std::optional<Duration> parse_duration(std::string_view whole);
// Returns "1.5 s", "20 ms" or "3 us", with four significant digits.
std::string format_duration(Duration duration);

}  // namespace lockstep
