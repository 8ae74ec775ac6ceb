// SPDX-License-Identifier: Apache-2.0
#include <cuda_runtime_api.h>

#include <algorithm>

#include "collectives/gpu/kernels.hpp"

namespace lockstep::gpu {
namespace {

constexpr unsigned threads_per_block = 256;
// More wait for memory than run.
constexpr unsigned blocks_per_processor = 8;

template <class F>
__global__ void __launch_bounds__(threads_per_block) combine(const __grid_constant__ Combining all) {
  combine_thread<F>(all, std::size_t{blockIdx.x} * blockDim.x + threadIdx.x, std::size_t{gridDim.x} * blockDim.x);
}

template <class Way>
__global__ void __launch_bounds__(threads_per_block) pack(const __grid_constant__ Packing all, bool packs) {
  pack_thread<Way>(all, packs, std::size_t{blockIdx.x} * blockDim.x + threadIdx.x, std::size_t{gridDim.x} * blockDim.x);
}

unsigned blocks_for(std::size_t threads) {
  int device = 0;
  int processors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const std::size_t needed = (threads + threads_per_block - 1) / threads_per_block;
  return static_cast<unsigned>(
      std::clamp<std::size_t>(needed, 1, blocks_per_processor * static_cast<unsigned>(processors)));
}

}  // namespace

cudaError_t launch(DataType type, const Combining& all, cudaStream_t stream) {
  if (all.count == 0) return cudaSuccess;
  cudaGetLastError();  // of somebody else
  const unsigned blocks = blocks_for((all.count * size_of(type) + vector_bytes - 1) / vector_bytes);
  const bool known = with_format(type, [&]<class F>(F) { combine<F><<<blocks, threads_per_block, 0, stream>>>(all); });
  return known ? cudaGetLastError() : cudaErrorInvalidValue;
}

cudaError_t launch(const Packing& all, bool packs, cudaStream_t stream) {
  if (all.count == 0) return cudaSuccess;
  cudaGetLastError();  // of somebody else
  const bool known = with_way(all, packs, [&]<class Way>(Way) {
    pack<Way><<<blocks_for(vectors_of<Way>(all, packs)), threads_per_block, 0, stream>>>(all, packs);
  });
  return known ? cudaGetLastError() : cudaErrorInvalidValue;
}

}  // namespace lockstep::gpu
