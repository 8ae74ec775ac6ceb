// SPDX-License-Identifier: Apache-2.0
// How a report's page looks: light and dark, from a phone to a wide screen, and printed. The colours of curves are
// those of Okabe and Ito, which people with any of the usual colour weaknesses tell apart.
#pragma once

#include <string>
#include <string_view>

namespace lockstep::bench {

std::string_view report_style();

// Returns the light colour of a variable, for pictures by themselves: "card" is "#fff". Empty if there is none.
std::string_view light_colour(std::string_view variable);

}  // namespace lockstep::bench
