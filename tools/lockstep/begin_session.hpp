// SPDX-License-Identifier: Apache-2.0
// A session for a subcommand. Some MPI libraries end the process by themselves when they cannot start,
// with a code that says nothing; then at least our exit code and a hint are right.
#pragma once

#include "topology/machine/session.hpp"

namespace lockstep::command {

Session begin_session(SessionOptions options);

}  // namespace lockstep::command
