// SPDX-License-Identifier: Apache-2.0
// Tells and changes the processors that a thread may run on.
#pragma once

#include <vector>

namespace lockstep {

// Returns the processors of this thread, by the system's numbers; none if the system does not tell.
std::vector<int> bound_processors();
// Moves this thread to these processors. Returns false if the system refuses, as in some containers.
bool bind_to_processors(const std::vector<int>& processors);

}  // namespace lockstep
