// SPDX-License-Identifier: Apache-2.0
// The number of descriptors that this process may have open.
#pragma once

#include <cstddef>

namespace lockstep {

// Raises the soft limit to twice its value, and to 65,536 at least, as far as the hard limit allows. Returns true if
// the limit is higher now.
bool raise_limit();

// Returns the soft limit; 0 if the system does not tell.
std::size_t descriptor_limit();

}  // namespace lockstep
