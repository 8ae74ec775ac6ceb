// SPDX-License-Identifier: Apache-2.0
// Holds memory that a thread keeps between calls of kernels, so that a training step allocates nothing after the first.
#pragma once

#include <cstddef>

namespace lockstep::train::compute {

// Names the user of a piece of memory. Kernels that run inside each other use different pieces.
enum class ScratchUse { left_panel, right_panels, transposed_result, padded_images, patch_gradients, flipped_kernel };

// Returns memory of this thread, `bytes` or more, aligned to a cache line. Its content is undefined. The pointer is
// valid until the thread asks for more memory of the same use.
void* scratch_memory(ScratchUse use, std::size_t bytes);

template <class T>
T* scratch(ScratchUse use, std::size_t count) {
  return static_cast<T*>(scratch_memory(use, count * sizeof(T)));
}

}  // namespace lockstep::train::compute
