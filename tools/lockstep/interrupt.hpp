// SPDX-License-Identifier: Apache-2.0
// Ctrl-C and a launcher's request to end, for commands that measure: what is under way ends well, and what there is is
// said.
#pragma once

namespace lockstep::command {

void end_early_on_signals();

}  // namespace lockstep::command
