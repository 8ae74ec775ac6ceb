// SPDX-License-Identifier: Apache-2.0
// Formats numbers for tables, comparisons and reports: three or more significant digits from 0.05 us to an hour.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::bench::number_text {

std::string number(double value);        // "0.412", "18210.0"; "-" if it is not finite
std::string ratio(double value);         // "1.86"
std::string percent(double value);       // "0.8", "91"
std::string short_number(double value);  // "0.05", "12.3", "1.5": at most three significant digits
std::string counted(std::size_t count, std::string_view one);  // "1 row", "2 rows"
std::string yes_or_no(bool yes);

}  // namespace lockstep::bench::number_text
