// SPDX-License-Identifier: Apache-2.0
// Holds the style of a report's page: light and dark, from a phone to a wide screen, and printed. The colours of curves
// are those of Okabe and Ito, which people with any of the usual colour weaknesses can tell apart.
#pragma once

#include <string_view>

namespace lockstep::bench {

// Returns the CSS of a page.
std::string_view report_style();

}  // namespace lockstep::bench
