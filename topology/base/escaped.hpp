// SPDX-License-Identifier: Apache-2.0
// Makes text from outside safe to print.
#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Returns `whole` with each control character written out, as "
// " or "\x1b". Otherwise a name that somebody else chose could move a terminal's cursor or forge a line. Leaves
// backslashes alone, so a second call changes nothing.
std::string escaped(std::string_view whole);

}  // namespace lockstep
