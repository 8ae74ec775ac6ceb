// SPDX-License-Identifier: Apache-2.0
// Names CUDA's stream without CUDA's header, so that programs can be built without CUDA.
#pragma once

namespace lockstep::gpu {

// Holds a cudaStream_t. Null is the default stream of a GPU.
using Stream = void*;

}  // namespace lockstep::gpu
