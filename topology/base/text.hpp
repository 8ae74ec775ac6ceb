// SPDX-License-Identifier: Apache-2.0
// Small text helpers: joining, sizes and durations as people write them, and the nearest name to a
// mistyped one. Parsers return nothing when the text is not exactly what they take.
#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

using Duration = std::chrono::nanoseconds;

namespace detail {
inline void append(std::string& all, std::string_view part) { all += part; }
inline void append(std::string& all, char part) { all += part; }
template <std::integral T>
requires(!std::same_as<T, bool> && !std::same_as<T, char>) void append(std::string& all, T part) {
  all += std::to_string(part);
}
void append(std::string& all, double part);
}  // namespace detail

// text("rank ", 3, " of ", 8) is "rank 3 of 8".
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string all;
  (detail::append(all, parts), ...);
  return all;
}

std::string join(std::span<const std::string> parts, std::string_view between);
std::vector<std::string> split(std::string_view whole, char at);
std::string_view trim(std::string_view whole);

std::optional<std::int64_t> parse_integer(std::string_view whole);
std::optional<double> parse_number(std::string_view whole);

// "10", "10s", "500ms", "2m", "1h"; a bare number is seconds.
std::optional<Duration> parse_duration(std::string_view whole);
std::string format_duration(Duration duration);

// "64 MiB": three significant digits, binary units.
std::string format_bytes(std::uint64_t bytes);

// Quotes a word from outside: bytes other than printable ASCII are escaped (topology/base/escaped.hpp), and all after
// `limit` bytes are cut, so that junk in a file or variable cannot spoil a terminal.
std::string printable(std::string_view whole, std::size_t limit = 80);

// For XML, as content or in quotes: the five special characters are named, control bytes become '?'.
std::string xml_escaped(std::string_view words);

// Sixteen digits.
std::string hexadecimal(std::uint64_t number);

// The candidate with the smallest edit distance, if it is near enough to be what was meant.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace lockstep
