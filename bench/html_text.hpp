// SPDX-License-Identifier: Apache-2.0
// Formats text for a report's page. All text from files passes through `escaped`, so that no host name, path or setting
// can become markup.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/number_text.hpp"

namespace lockstep::bench::html {

// Escapes text for content and attributes. It names the five special characters. It replaces control characters,
// characters that change the writing direction, and bytes that are not UTF-8.
std::string escaped(std::string_view words);

using number_text::counted;
using number_text::number;
using number_text::percent;
using number_text::ratio;
using number_text::short_number;
std::string time_word(double us);            // "0.41 µs", "18.2 ms"
std::string size_word(std::uint64_t bytes);  // "8", "4K", "1.5M" if exact, else the number of bytes
std::string coordinate(double value);        // in pixels, to a tenth

// Returns <name attributes>content</name>. `attributes` begins with a blank or is empty. It escapes nothing.
std::string element(std::string_view name, std::string_view attributes, std::string_view content);

}  // namespace lockstep::bench::html
