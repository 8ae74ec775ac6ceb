// SPDX-License-Identifier: Apache-2.0
// Gives memory for the tensors of a training step, and keeps it for the next step: fresh pages cost more than the
// arithmetic of most ops.
#pragma once

#include <cstddef>

#include "runtime/any_tensor.hpp"

namespace lockstep::train {

// Returns a tensor in the host's memory whose elements have no values yet. Its memory begins at a cache line. When the
// last copy ends, in any thread, the memory returns to the pool of the thread that asked for it.
AnyTensor uninitialized_tensor(DataType type, TensorShape shape);

// Returns the bytes that the pool of this thread keeps, unused.
std::size_t pooled_bytes();

}  // namespace lockstep::train
