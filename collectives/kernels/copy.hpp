// SPDX-License-Identifier: Apache-2.0
// Declares copies by vector instructions. On some processors the C library's copy is ten times slower if two buffers
// lie badly to each other.
#pragma once

#include <cstddef>

namespace lockstep {

// Copies bytes between buffers that do not overlap and need no alignment. With 0 bytes the pointers may be null.
void copy_bytes(void* target, const void* source, std::size_t bytes);
// Copies like copy_bytes(), but writes past the caches. This suits data that will leave the caches before it is read.
void stream_bytes(void* target, const void* source, std::size_t bytes);

}  // namespace lockstep
