// SPDX-License-Identifier: Apache-2.0
// Declares the launches of Lockstep's kernels, on the calling thread's current GPU.
#pragma once

#include <cuda_runtime_api.h>

#include "collectives/gpu/combining.hpp"
#include "collectives/gpu/packing.hpp"

namespace lockstep::gpu {

// Starts a kernel that combines `all`. Returns cudaErrorInvalidValue if there is none for the type.
cudaError_t launch(DataType type, const CombineArguments& all, cudaStream_t stream);
// Starts a kernel that packs the pieces into the whole, or unpacks them. Returns cudaErrorInvalidValue if the types do
// not convert.
cudaError_t launch(const PackArguments& all, bool packs, cudaStream_t stream);
// Loads every kernel before any is launched. Otherwise CUDA loads each at its first launch, and then waits for all work
// on the GPU. That work may itself wait for the launch.
cudaError_t load_kernels();

}  // namespace lockstep::gpu
