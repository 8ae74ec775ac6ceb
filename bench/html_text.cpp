// SPDX-License-Identifier: Apache-2.0
// Escapes text letter by letter, because text from files may have any bytes.
#include "bench/html_text.hpp"

#include <algorithm>
#include <array>
#include <cmath>

#include "topology/base/text.hpp"

namespace lockstep::bench::html {
namespace {

constexpr std::string_view replacement = "\xEF\xBF\xBD";

unsigned byte_at(std::string_view words, std::size_t at) {
  return at < words.size() ? static_cast<unsigned char>(words[at]) : 0U;
}

// Returns the number of bytes of the letter that begins here; 0 if no letter does.
std::size_t letter_length(std::string_view words) {
  const unsigned first = byte_at(words, 0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xC2 && first < 0xE0   ? 2
                             : first >= 0xE0 && first < 0xF0 ? 3
                             : first >= 0xF0 && first < 0xF5 ? 4
                                                             : 0;
  for (std::size_t i = 1; i < length; ++i) {
    if ((byte_at(words, i) & 0xC0U) != 0x80) return 0;
  }
  const unsigned second = byte_at(words, 1);
  const bool wrong = (first == 0xE0 && second < 0xA0) || (first == 0xED && second >= 0xA0) ||
                     (first == 0xF0 && second < 0x90) || (first == 0xF4 && second >= 0x90);
  return wrong ? 0 : length;
}

// Returns true for letters that XML forbids, or that change the writing direction.
bool is_harmful(std::string_view letter) {
  if (letter.size() == 1) return byte_at(letter, 0) < 0x20 || byte_at(letter, 0) == 0x7F;
  if (letter.size() == 2) return byte_at(letter, 0) == 0xC2 && byte_at(letter, 1) < 0xA0;
  if (letter.size() != 3) return false;
  const unsigned code =
      (byte_at(letter, 0) & 0xFU) << 12U | (byte_at(letter, 1) & 0x3FU) << 6U | (byte_at(letter, 2) & 0x3FU);
  return (code >= 0x202A && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069) || code == 0x200E || code == 0x200F ||
         code >= 0xFFFE;
}

}  // namespace

std::string escaped(std::string_view words) {
  std::string all;
  while (!words.empty()) {
    const std::size_t length = letter_length(words);
    const std::string_view letter = words.substr(0, std::max<std::size_t>(length, 1));
    if (letter == "\n" || letter == "\t")
      all += ' ';
    else if (length == 0 || is_harmful(letter))
      all += replacement;
    else
      all += xml_escaped(letter);
    words.remove_prefix(letter.size());
  }
  return all;
}

std::string time_word(double us) {
  if (!std::isfinite(us)) return "-";
  if (us < 999.5) return text(short_number(us), " µs");
  if (us < 999500) return text(short_number(us / 1e3), " ms");
  return text(short_number(us / 1e6), " s");
}

std::string size_word(std::uint64_t bytes) {
  constexpr std::array<char, 5> units = {'T', 'G', 'M', 'K', 0};
  for (std::size_t i = 0; units.at(i) != 0; ++i) {
    const std::uint64_t unit = std::uint64_t{1} << (40 - 10 * i);
    if (bytes < unit) continue;
    if (bytes % unit == 0) return text(bytes / unit, units.at(i));
    if (bytes % (unit / 2) == 0) return text(bytes / unit, ".5", units.at(i));
    break;
  }
  return text(bytes);
}

std::string coordinate(double value) {
  std::string all = with_decimals(value, 1);
  if (all.ends_with(".0")) all.resize(all.size() - 2);
  return all == "-0" ? "0" : all;
}

std::string element(std::string_view name, std::string_view attributes, std::string_view content) {
  return text('<', name, attributes, '>', content, "</", name, '>');
}

}  // namespace lockstep::bench::html
