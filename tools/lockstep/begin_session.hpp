// SPDX-License-Identifier: Apache-2.0
// A session for a subcommand. Some MPI libraries end the process by themselves when they cannot start,
// with a code that says nothing; then at least our exit code and a hint are right.
#pragma once

#include <string_view>

#include "topology/machine/session.hpp"

namespace lockstep::command {

Session begin_session(SessionOptions options);

// Warns of unknown LOCKSTEP_ variables, as a session would: for subcommands that begin none.
void warn_of_unknown_variables();

// Says on standard error that one rank has nobody to talk to, and how to start several.
void hint_at_more_ranks(std::string_view subcommand, std::string_view because);

}  // namespace lockstep::command
