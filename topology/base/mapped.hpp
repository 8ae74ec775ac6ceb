// SPDX-License-Identifier: Apache-2.0
// Tells which memory this process may read or write, as the kernel lists it.
#pragma once

#include <cstddef>

namespace lockstep {

enum class Access : unsigned char { read, write };

// True if all of these bytes are mapped with that access, or if the kernel does not tell. Takes milliseconds in a
// process with many mappings.
bool is_mapped(const void* data, std::size_t bytes, Access access);

}  // namespace lockstep
