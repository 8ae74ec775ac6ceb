// SPDX-License-Identifier: Apache-2.0
// Small text helpers: joining, sizes as people write them, and the nearest name to a mistyped one.
// Parsers return nothing unless the whole text is of their form.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

namespace detail {
inline void append(std::string& all, std::string_view part) { all += part; }
inline void append(std::string& all, char part) { all += part; }
template <std::integral T>
requires(!std::same_as<T, bool> && !std::same_as<T, char>) void append(std::string& all, T part) {
  all += std::to_string(part);
}
void append(std::string& all, double part);
}  // namespace detail

// Joins its arguments: text("rank ", 3, " of ", 8) is "rank 3 of 8". Fractions have four significant digits.
template <class... Parts>
std::string text(const Parts&... parts) {
  std::string all;
  (detail::append(all, parts), ...);
  return all;
}

// Return a number with significant digits, or with decimals, in the same way in every locale.
std::string with_digits(double value, int digits);
std::string with_decimals(double value, int decimals);

// Join with a separator between parts, cut at each `at` (so n separators give n + 1 parts), and cut off blanks at
// both ends. trim() refers to its argument.
std::string join(std::span<const std::string> parts, std::string_view between);
std::vector<std::string> split(std::string_view whole, char at);
std::string_view trim(std::string_view whole);

// Parse a decimal number. parse_number() takes no exponent and nothing infinite.
std::optional<std::int64_t> parse_integer(std::string_view whole);
std::optional<double> parse_number(std::string_view whole);

// Returns "64 MiB": binary units, with three significant digits if the number is not whole.
std::string format_bytes(std::uint64_t bytes);

// Quotes a word from outside, so that junk in a file or variable cannot spoil a terminal. It escapes bytes other
// than printable ASCII (topology/base/escaped.hpp), and cuts after `limit` bytes.
std::string printable(std::string_view whole, std::size_t limit = 80);

// Escapes text for XML, as content or in quotes. It names the five special characters, and turns control bytes into
// '?'.
std::string xml_escaped(std::string_view words);

// Returns sixteen digits.
std::string hexadecimal(std::uint64_t number);

// Returns the candidate with the smallest edit distance, or nothing if none is near enough to be meant. Near enough
// is a third of the word's letters, and at least two.
std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates);

}  // namespace lockstep
