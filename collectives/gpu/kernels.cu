// SPDX-License-Identifier: Apache-2.0
// Holds the CUDA kernels, which are thin shells around combining.hpp and packing.hpp.
#include <cuda_runtime_api.h>

#include <algorithm>

#include "collectives/gpu/kernels.hpp"

namespace lockstep::gpu {
namespace {

constexpr unsigned threads_per_block = 256;
template <class F, DivisionMode dividing>
__global__ void __launch_bounds__(threads_per_block) combine(const __grid_constant__ CombineArguments all) {
  combine_thread<F, dividing>(all, std::size_t{blockIdx.x} * blockDim.x + threadIdx.x,
                              std::size_t{gridDim.x} * blockDim.x);
}

template <class Copier>
__global__ void __launch_bounds__(threads_per_block) pack(const __grid_constant__ PackArguments all, bool packs) {
  pack_thread<Copier>(all, packs, std::size_t{blockIdx.x} * blockDim.x + threadIdx.x,
                      std::size_t{gridDim.x} * blockDim.x);
}

// Returns the number of blocks that run at once, or fewer if these suffice. So all blocks get equal parts, and none has
// to wait for a free place.
template <auto kernel>  // a value, because kernels of one type need different resources
unsigned blocks_for(std::size_t threads) {
  static const int at_once = [&] {
    int found = 0;
    const bool is_known =
        cudaOccupancyMaxActiveBlocksPerMultiprocessor(&found, kernel, threads_per_block, 0) == cudaSuccess;
    if (!is_known) cudaGetLastError();  // the launch will report the error
    return is_known && found > 0 ? found : 1;
  }();
  int device = 0;
  int processors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  const std::size_t needed = (threads + threads_per_block - 1) / threads_per_block;
  return static_cast<unsigned>(
      std::clamp<std::size_t>(needed, 1, static_cast<unsigned>(at_once) * static_cast<unsigned>(processors)));
}

cudaError_t load(const void* kernel) {
  cudaFuncAttributes unread{};
  return cudaFuncGetAttributes(&unread, kernel);
}

}  // namespace

cudaError_t launch(DataType type, const CombineArguments& all, cudaStream_t stream) {
  if (all.count == 0) return cudaSuccess;
  cudaGetLastError();  // clears an earlier error of other code
  const std::size_t threads = (all.count * size_of(type) + vector_bytes - 1) / vector_bytes;
  const bool known = with_format(type, [&]<class F>(F) {
    with_dividing<F>(all.divisor, [&]<DivisionMode dividing>(std::integral_constant<DivisionMode, dividing>) {
      combine<F, dividing><<<blocks_for<&combine<F, dividing>>(threads), threads_per_block, 0, stream>>>(all);
    });
  });
  return known ? cudaGetLastError() : cudaErrorInvalidValue;
}

cudaError_t launch(const PackArguments& all, bool packs, cudaStream_t stream) {
  if (all.count == 0) return cudaSuccess;
  cudaGetLastError();  // clears an earlier error of other code
  const bool known = with_copier(all, packs, [&]<class Copier>(Copier) {
    pack<Copier>
        <<<blocks_for<&pack<Copier>>(threads_of<Copier>(all, packs)), threads_per_block, 0, stream>>>(all, packs);
  });
  return known ? cudaGetLastError() : cudaErrorInvalidValue;
}

cudaError_t load_kernels() {
  cudaError_t status = cudaSuccess;
  const auto add = [&](cudaError_t next) {
    if (status == cudaSuccess) status = next;
  };
  for (int number = 0; number < data_type_count; ++number) {
    const auto type = static_cast<DataType>(number);
    for (const std::int64_t divisor : {0, 2, 3}) {  // no division, an exact one, any other one
      with_format(type, [&]<class F>(F) {
        with_dividing<F>(divisor, [&]<DivisionMode dividing>(std::integral_constant<DivisionMode, dividing>) {
          add(load(reinterpret_cast<const void*>(combine<F, dividing>)));
        });
      });
      for (const DataType other : {type, DataType::f32}) {
        for (const bool packs : {true, false}) {
          PackArguments all;
          all.in_pieces = type;
          all.in_whole = other;
          all.scales = true;
          all.divisor = divisor;
          with_copier(all, packs,
                      [&]<class Copier>(Copier) { add(load(reinterpret_cast<const void*>(pack<Copier>))); });
        }
      }
    }
  }
  add(load(reinterpret_cast<const void*>(pack<PlainCopy>)));
  if (status != cudaSuccess) cudaGetLastError();  // clears the error for the next call
  return status;
}

}  // namespace lockstep::gpu
