// SPDX-License-Identifier: Apache-2.0
// Decides the end of a process for an Error that nobody catches.
#pragma once

namespace lockstep {

// Makes such an error print its text and end the process with its own exit code, for launchers and scripts. It does
// nothing if the program has set a std::terminate_handler itself. Other exceptions end the process as before.
void end_by_exit_codes();

}  // namespace lockstep
