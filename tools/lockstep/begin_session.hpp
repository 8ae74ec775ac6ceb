// SPDX-License-Identifier: Apache-2.0
// Begins the session of a subcommand. Some MPI libraries end the process if they cannot start, with a code that tells
// nothing. This file ensures the right exit code and a hint.
#pragma once

#include <string_view>

#include "topology/machine/session.hpp"

namespace lockstep::command {

// Begins the session. Throws Error if it cannot.
Session begin_session(SessionOptions options);

// Warns of unknown LOCKSTEP_ variables, as a session does. Subcommands without a session call it.
void warn_of_unknown_variables();

// Prints on standard error that one rank has no partner, and how to start several.
void hint_at_more_ranks(std::string_view subcommand, std::string_view because);

}  // namespace lockstep::command
