// SPDX-License-Identifier: Apache-2.0
// What becomes of an error of Lockstep's that nobody catches.
#pragma once

namespace lockstep {

// From now on such an error says its words and ends the process with its own exit code, which launchers and scripts
// read, where the program has not said itself what is to become of exceptions (std::set_terminate). Others end it as
// before.
void end_by_exit_codes();

}  // namespace lockstep
