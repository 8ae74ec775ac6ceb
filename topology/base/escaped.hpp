// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Returns `whole` with each control character written out, as "\n" or "\x1b". A name that somebody else chose could
// otherwise move a terminal's cursor or forge a line. Leaves backslashes alone, so a second time changes nothing.
std::string escaped(std::string_view whole);

}  // namespace lockstep
