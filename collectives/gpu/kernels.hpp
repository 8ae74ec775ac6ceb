// SPDX-License-Identifier: Apache-2.0
// Launches on the calling thread's current GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "collectives/gpu/combining.hpp"
#include "collectives/gpu/packing.hpp"

namespace lockstep::gpu {

cudaError_t launch(DataType type, const CombineArguments& all, cudaStream_t stream);
// The pieces into the whole, or the whole into the pieces.
cudaError_t launch(const PackArguments& all, bool packs, cudaStream_t stream);
// All that may be launched, before anything is. Otherwise CUDA loads each when it is launched first, and then waits for
// all that is on the GPU, be it held back by who waits for the launch.
cudaError_t load_kernels();

}  // namespace lockstep::gpu
