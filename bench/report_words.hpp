// SPDX-License-Identifier: Apache-2.0
// Words and numbers of a report's page. All that comes from a file goes through `escaped`, so that no host name, path
// or setting can become markup. Numbers are those of the bench's table: three or more significant digits.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lockstep::bench::html {

// For content and attributes: the five special characters are named; control characters, what turns the direction of
// writing, and bytes that are no UTF-8 are replaced.
std::string escaped(std::string_view words);

std::string fixed(double value, int decimals);
std::string number(double value);            // "0.412", "18210.0"; "-" where it is not finite
std::string ratio(double value);             // "1.86"
std::string percent(double value);           // "0.8", "91"
std::string short_number(double value);      // "0.05", "12.3", "1.5": at most three significant digits
std::string time_word(double us);            // "0.41 µs", "18.2 ms"
std::string size_word(std::uint64_t bytes);  // "8", "4K", "1.5M": exact, or the bytes themselves
std::string counted(std::size_t count, std::string_view one);  // "1 row", "2 rows"
std::string coordinate(double value);                          // a tenth of a pixel

// <name attributes>content</name>; attributes begin with a blank or are empty, and nothing is escaped here.
std::string element(std::string_view name, std::string_view attributes, std::string_view content);

}  // namespace lockstep::bench::html
