// SPDX-License-Identifier: Apache-2.0
// Implements the text helpers: joining, parsing, formatting and escaping.
#include "topology/base/text.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "topology/base/duration.hpp"
#include "topology/base/escaped.hpp"

namespace lockstep {

void detail::append(std::string& all, double part) { all += with_digits(part, 4); }

std::string with_digits(double value, int digits) {
  std::array<char, 40> buffer{};
  return {buffer.data(), std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::general, digits).ptr};
}

std::string with_decimals(double value, int decimals) {
  std::array<char, 400> buffer{};  // the largest double has 309 digits
  return {buffer.data(), std::to_chars(buffer.begin(), buffer.end(), value, std::chars_format::fixed, decimals).ptr};
}

std::string join(std::span<const std::string> parts, std::string_view between) {
  std::string all;
  for (const std::string& part : parts) {
    if (&part != parts.data()) all += between;
    all += part;
  }
  return all;
}

std::vector<std::string> split(std::string_view whole, char at) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t end = whole.find(at);
    parts.emplace_back(whole.substr(0, end));
    if (end == std::string_view::npos) return parts;
    whole.remove_prefix(end + 1);
  }
}

std::string_view trim(std::string_view whole) {
  constexpr std::string_view blanks = " \t\r\n";
  const std::size_t first = whole.find_first_not_of(blanks);
  if (first == std::string_view::npos) return {};
  return whole.substr(first, whole.find_last_not_of(blanks) - first + 1);
}

std::optional<std::int64_t> parse_integer(std::string_view whole) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(whole.data(), whole.data() + whole.size(), value);
  if (error != std::errc{} || end != whole.data() + whole.size()) return std::nullopt;
  return value;
}

std::optional<double> parse_number(std::string_view whole) {
  double value = 0;
  const auto [end, error] = std::from_chars(whole.data(), whole.data() + whole.size(), value, std::chars_format::fixed);
  if (error != std::errc{} || end != whole.data() + whole.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<Duration> parse_duration(std::string_view whole) {
  constexpr std::array<std::pair<std::string_view, double>, 6> units = {
      {{"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}, {"s", 1}, {"m", 60}, {"h", 3600}}};
  double scale = 1;
  for (const auto& [name, seconds] : units) {
    if (whole.ends_with(name)) {
      scale = seconds;
      whole.remove_suffix(name.size());
      break;
    }
  }
  const auto number = parse_number(whole);
  constexpr double limit_s = 1e9;  // thirty years in seconds; keeps the nanoseconds in range
  if (!number || *number < 0 || *number * scale > limit_s) return std::nullopt;
  return Duration(std::llround(*number * scale * 1e9));
}

std::string format_duration(Duration duration) {
  const double seconds = std::chrono::duration<double>(duration).count();
  if (seconds == 0) return "0 s";
  if (seconds < 1e-3) return text(seconds * 1e6, " us");
  if (seconds < 1) return text(seconds * 1e3, " ms");
  return text(seconds, " s");
}

std::string format_bytes(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 6> units = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  return text(value == std::floor(value) ? with_decimals(value, 0) : with_digits(value, 3), " ", units[unit]);
}

namespace {

// Appends a letter as \n, \t, \r or \x and two digits.
void append_escape(std::string& all, char letter) {
  constexpr std::string_view digits = "0123456789abcdef";
  const auto code = static_cast<unsigned char>(letter);
  switch (letter) {
    case '\n':
      all += "\\n";
      break;
    case '\t':
      all += "\\t";
      break;
    case '\r':
      all += "\\r";
      break;
    default:
      all += {'\\', 'x', digits[code >> 4U], digits[code & 0xFU]};
  }
}

bool is_control(char letter) {
  const auto code = static_cast<unsigned char>(letter);
  return code < 0x20 || code == 0x7f;
}

// True for U+0080 to U+009f as UTF-8, of which terminals obey some.
bool is_wide_control(std::string_view rest) {
  const auto second = rest.size() < 2 ? 0U : static_cast<unsigned char>(rest[1]);
  return static_cast<unsigned char>(rest.front()) == 0xc2 && second >= 0x80 && second < 0xa0;
}

}  // namespace

std::string escaped(std::string_view whole) {
  std::string all;
  all.reserve(whole.size());
  for (std::size_t i = 0; i < whole.size(); ++i) {
    if (is_wide_control(whole.substr(i))) {
      append_escape(all, whole[i]);
      append_escape(all, whole[++i]);
    } else if (is_control(whole[i])) {
      append_escape(all, whole[i]);
    } else {
      all += whole[i];
    }
  }
  return all;
}

std::string printable(std::string_view whole, std::size_t limit) {
  std::string all;
  for (const char letter : whole.substr(0, limit)) {
    if (is_control(letter) || static_cast<unsigned char>(letter) >= 0x80)
      append_escape(all, letter);
    else
      all += letter;
  }
  if (whole.size() > limit) all += "...";
  return all;
}

namespace {

// Returns the number of insertions, deletions and replacements between two words, with one row of the table in memory.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, replaced});
    }
  }
  return row.back();
}

}  // namespace

std::string xml_escaped(std::string_view words) {
  std::string all;
  for (const char letter : words) {
    switch (letter) {
      case '&':
        all += "&amp;";
        break;
      case '<':
        all += "&lt;";
        break;
      case '>':
        all += "&gt;";
        break;
      case '"':
        all += "&quot;";
        break;
      case '\'':
        all += "&apos;";
        break;
      default:
        all += static_cast<unsigned char>(letter) < 0x20 ? '?' : letter;
    }
  }
  return all;
}

std::string hexadecimal(std::uint64_t number) {
  constexpr std::string_view digits = "0123456789abcdef";
  std::string all(16, '0');
  for (std::size_t i = all.size(); i-- > 0; number >>= 4U) all[i] = digits[number & 0xFU];
  return all;
}

std::optional<std::string> nearest(std::string_view word, std::span<const std::string> candidates) {
  constexpr std::size_t longest = 128;  // letters; a longer name is junk, not a slip
  if (word.size() > longest) return std::nullopt;
  std::optional<std::string> best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t longer = std::max(word.size(), candidate.size()) - std::min(word.size(), candidate.size());
    if (longer >= best_distance) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance) {
      best_distance = distance;
      best = candidate;
    }
  }
  return best;
}

}  // namespace lockstep
