// SPDX-License-Identifier: Apache-2.0
// Copies by vectors. The buffers do not overlap.
#pragma once

#include <cstddef>

namespace lockstep {

void copy_bytes(void* target, const void* source, std::size_t bytes);
// Past the caches, for what will not be read before it has left them anyway.
void stream_bytes(void* target, const void* source, std::size_t bytes);

}  // namespace lockstep
