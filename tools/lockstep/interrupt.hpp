// SPDX-License-Identifier: Apache-2.0
// Handles Ctrl-C and a launcher's request to end, for commands that measure. The current measurement completes, and the
// results so far are printed.
#pragma once

namespace lockstep::command {

// Installs the signal handlers.
void end_early_on_signals();

}  // namespace lockstep::command
