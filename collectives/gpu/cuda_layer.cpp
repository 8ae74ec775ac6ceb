// SPDX-License-Identifier: Apache-2.0
// The layer over the CUDA runtime. Devices are used through their primary contexts, as the runtime's own calls do, and
// the calling thread's current device is as it was when a call returns.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <array>
#include <mutex>
#include <vector>

#include "collectives/gpu/kernels.hpp"
#include "collectives/gpu/layer.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::gpu {
namespace {

[[noreturn]] void refuse(cudaError_t error, std::string_view what) {
  cudaGetLastError();  // the next call begins without it
  if (error == cudaErrorMemoryAllocation)
    throw Error(Code::out_of_memory, text(what, ": ", cudaGetErrorString(error)),
                "use less, or free what is not needed; other processes on the GPU count too (nvidia-smi)");
  throw Error(Code::device, text(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")"),
              "an error of a kernel that ran before may be the reason; `lockstep doctor` looks at the GPU");
}

void check(cudaError_t error, std::string_view what) {
  if (error != cudaSuccess) [[unlikely]]
    refuse(error, what);
}

// The thread's current device while it lives.
class On {
 public:
  explicit On(int device) {
    check(cudaGetDevice(&before_), "asking for the current GPU");
    if (device != before_) check(cudaSetDevice(device), text("using GPU ", device));
    changed_ = device != before_;
  }
  ~On() {
    if (changed_) cudaSetDevice(before_);
  }
  On(const On&) = delete;
  On& operator=(const On&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

using Attributes = CUresult (*)(unsigned, CUpointer_attribute*, void**, CUdeviceptr);

// Of the driver, because the runtime's own makes a context on the current device, if there is none.
Attributes find_attributes() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  constexpr unsigned since = 7000;
  if (cudaGetDriverEntryPointByVersion("cuPointerGetAttributes", &found, since, cudaEnableDefault, &result) !=
      cudaSuccess)
    cudaGetLastError();
  return reinterpret_cast<Attributes>(found);
}

class CudaLayer final : public Layer {
 public:
  CudaLayer(int devices, Attributes attributes)
      : attributes_(attributes), streams_(static_cast<std::size_t>(devices), nullptr) {}

  int devices() const override { return static_cast<int>(streams_.size()); }

  Where where(const void* address) const override {
    CUmemorytype type{};
    unsigned managed = 0;
    int device = 0;
    std::array asked = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    std::array<void*, 3> answers = {&type, &managed, &device};
    const auto pointer = reinterpret_cast<CUdeviceptr>(address);
    if (attributes_(asked.size(), asked.data(), answers.data(), pointer) != CUDA_SUCCESS) return {};
    return type == CU_MEMORYTYPE_DEVICE && managed == 0 ? Where{device} : Where{};
  }

  std::byte* allocate(int device, std::size_t bytes) override {
    const On on(device);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), text("allocating ", bytes, " bytes on GPU ", device));
    return static_cast<std::byte*>(memory);
  }

  void free(int device, std::byte* memory) noexcept override {
    try {
      const On on(device);
      cudaFree(memory);
    } catch (const Error&) {
      return;  // the driver has ended, and all memory with it
    }
  }

  std::byte* allocate_pinned(std::size_t bytes) override {
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), text("pinning ", bytes, " bytes of host memory"));
    return static_cast<std::byte*>(memory);
  }

  void free_pinned(std::byte* memory) noexcept override { cudaFreeHost(memory); }

  void copy(int device, Runs to, Runs from, std::size_t bytes, std::size_t blocks) override {
    const On on(device);
    cudaStream_t const stream = stream_of(device);
    const cudaError_t begun = blocks == 1 ? cudaMemcpyAsync(to.first, from.first, bytes, cudaMemcpyDefault, stream)
                                          : cudaMemcpy2DAsync(to.first, to.stride, from.first, from.stride, bytes,
                                                              blocks, cudaMemcpyDefault, stream);
    check(begun, text("copying ", bytes * blocks, " bytes from or to GPU ", device));
    check(cudaStreamSynchronize(stream), text("copying ", bytes * blocks, " bytes from or to GPU ", device));
  }

  void pack(int device, const Packing& all, bool packs) override {
    const On on(device);
    finish(launch(all, packs, stream_of(device)), device, text("packing ", all.count, " pieces"));
  }

  void combine(int device, DataType type, const Combining& all) override {
    const On on(device);
    finish(launch(type, all, stream_of(device)), device,
           text("combining ", all.input_count, " parts of ", all.count, " elements of ", to_string(type)));
  }

 private:
  void finish(cudaError_t begun, int device, std::string_view what) {
    check(begun, text(what, " on GPU ", device));
    check(cudaStreamSynchronize(stream_of(device)), text(what, " on GPU ", device));
  }

  // One that waits for the default stream and is waited for by it.
  cudaStream_t stream_of(int device) {
    const std::lock_guard lock(mutex_);
    cudaStream_t& stream = streams_.at(static_cast<std::size_t>(device));
    if (stream == nullptr) check(cudaStreamCreate(&stream), text("making a stream on GPU ", device));
    return stream;
  }

  Attributes attributes_;
  std::mutex mutex_;
  std::vector<cudaStream_t> streams_;  // by device; they end with the process
};

}  // namespace

std::unique_ptr<Layer> make_layer(std::string& why_none) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    why_none = text("this process sees no GPU: ",
                    error != cudaSuccess ? cudaGetErrorString(error) : "the driver shows none (CUDA_VISIBLE_DEVICES?)");
    cudaGetLastError();
    return nullptr;
  }
  const Attributes attributes = find_attributes();
  if (attributes == nullptr) {
    why_none = "the GPU's driver does not say whose memory an address is in: it is too old for this build";
    return nullptr;
  }
  return std::make_unique<CudaLayer>(count, attributes);
}

}  // namespace lockstep::gpu
