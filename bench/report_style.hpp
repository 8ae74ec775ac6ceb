// SPDX-License-Identifier: Apache-2.0
// How a report's page looks: light and dark, from a phone to a wide screen, and printed. The colours of curves are
// those of Okabe and Ito, which people with any of the usual colour weaknesses tell apart.
#pragma once

#include <string_view>

namespace lockstep::bench {

std::string_view report_style();

}  // namespace lockstep::bench
