// SPDX-License-Identifier: Apache-2.0
// Words of a report's page. All that comes from a file goes through `escaped`, so that no host name, path
// or setting can become markup.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "bench/number_text.hpp"

namespace lockstep::bench::html {

// For content and attributes: the five special characters are named; control characters, what turns the direction of
// writing, and bytes that are no UTF-8 are replaced.
std::string escaped(std::string_view words);

using number_text::counted;
using number_text::fixed;
using number_text::number;
using number_text::percent;
using number_text::ratio;
using number_text::short_number;
std::string time_word(double us);            // "0.41 µs", "18.2 ms"
std::string size_word(std::uint64_t bytes);  // "8", "4K", "1.5M": exact, or the bytes themselves
std::string coordinate(double value);        // a tenth of a pixel

// <name attributes>content</name>; attributes begin with a blank or are empty, and nothing is escaped here.
std::string element(std::string_view name, std::string_view attributes, std::string_view content);

}  // namespace lockstep::bench::html
