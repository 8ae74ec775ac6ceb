// SPDX-License-Identifier: Apache-2.0
// Implements DeviceBackend on the CUDA runtime. It uses the primary contexts of devices, as the runtime does. After a
// call the thread has the same current device as before, or none (current_context.hpp).
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "collectives/gpu/cuda_event.hpp"
#include "collectives/gpu/cuda_shared_event.hpp"
#include "collectives/gpu/current_context.hpp"
#include "collectives/gpu/device_backend.hpp"
#include "collectives/gpu/kernels.hpp"

namespace lockstep::gpu {

void refuse(cudaError_t error, std::string_view what) {
  cudaGetLastError();  // clears the error for the next call
  if (error == cudaErrorMemoryAllocation)
    throw Error(Code::out_of_memory, text(what, ": ", cudaGetErrorString(error)),
                "use less, or free unused memory; other processes on the GPU count too (nvidia-smi)");
  throw Error(Code::device, text(what, ": ", cudaGetErrorString(error), " (", cudaGetErrorName(error), ")"),
              "an error of a kernel that ran before may be the reason; `lockstep doctor` looks at the GPU");
}

namespace {

class CudaBackend final : public DeviceBackend {
 public:
  explicit CudaBackend(int devices)
      : streams_(static_cast<std::size_t>(devices), nullptr),
        marks_(static_cast<std::size_t>(devices)),
        contexts_(static_cast<std::size_t>(devices), 0),
        loaded_(static_cast<std::size_t>(devices), 0) {
    constexpr std::size_t kept = 64;
    for (auto& each : marks_) each.reserve(kept);
  }

  int devices() const override { return static_cast<int>(streams_.size()); }

  void enter(int device) override {
    // Always pushes a context, because leave() pops one.
    if (enter_context(device)) return;
    CUcontext same = nullptr;
    check(driver()->current(&same), "asking for the current GPU");
    check(driver()->push(same), text("using GPU ", device));
  }
  void leave() noexcept override { leave_context(); }

  std::string id(int device) const override {
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, device), text("asking for the serial of GPU ", device));
    std::string id;
    for (const char byte : properties.uuid.bytes) {
      constexpr std::string_view digits = "0123456789abcdef";
      const auto value = static_cast<unsigned char>(byte);
      id += {digits[value / 16], digits[value % 16]};
    }
    return id;
  }

  void prepare() noexcept override {
    try {
      for (int device = 0; device < devices(); ++device) {
        const unsigned long long number = number_of_context(device);
        {
          const std::lock_guard lock(mutex_);
          const unsigned long long before = std::exchange(contexts_[static_cast<std::size_t>(device)], number);
          if (before != 0 && before != number) forget(device);
          if (std::exchange(loaded_[static_cast<std::size_t>(device)], number) == number) continue;
        }
        if (number != 0) load_all(device);
      }
    } catch (const Error&) {
      return;
    }
  }

  MemoryLocation where(const void* address) const override {
    CUmemorytype type{};
    unsigned managed = 0;
    int device = 0;
    std::array asked = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    std::array<void*, 3> answers = {&type, &managed, &device};
    const auto pointer = reinterpret_cast<CUdeviceptr>(address);
    if (driver()->attributes(asked.size(), asked.data(), answers.data(), pointer) != CUDA_SUCCESS) return {};
    if (type != CU_MEMORYTYPE_DEVICE || managed != 0) return {};
    seen_.store(device, std::memory_order_relaxed);
    return {device};
  }

  std::byte* allocate(int device, std::size_t bytes) override {
    const CurrentContext on(device);
    void* memory = nullptr;
    check(cudaMalloc(&memory, bytes), text("allocating ", bytes, " bytes on GPU ", device));
    return static_cast<std::byte*>(memory);
  }

  void free(int device, std::byte* memory) noexcept override {
    try {
      const CurrentContext on(device);
      if (cudaFree(memory) != cudaSuccess) cudaGetLastError();
    } catch (const Error&) {
      return;  // the driver has ended, and all memory with it
    }
  }

  // All GPUs reach this memory. A GPU that holds data is current meanwhile, because the runtime would otherwise make a
  // context on GPU 0.
  std::byte* allocate_pinned(std::size_t bytes) override {
    const CurrentContext on(seen_.load(std::memory_order_relaxed));
    void* memory = nullptr;
    check(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), text("pinning ", bytes, " bytes of host memory"));
    return static_cast<std::byte*>(memory);
  }

  void free_pinned(std::byte* memory) noexcept override {
    try {
      const CurrentContext on(seen_.load(std::memory_order_relaxed));
      if (cudaFreeHost(memory) != cudaSuccess) cudaGetLastError();
    } catch (const Error&) {
      return;  // the driver has ended, and all memory with it
    }
  }

  std::optional<IpcMemoryHandle> show(const void* address) override {
    unsigned long long number = 0;
    CUdeviceptr base = 0;
    unsigned can_be_mapped = 0;
    int device = 0;
    std::array asked = {CU_POINTER_ATTRIBUTE_BUFFER_ID, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR,
                        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    std::array<void*, 4> answers = {&number, &base, &can_be_mapped, &device};
    const auto pointer = reinterpret_cast<CUdeviceptr>(address);
    if (driver()->attributes(asked.size(), asked.data(), answers.data(), pointer) != CUDA_SUCCESS) return std::nullopt;
    if (can_be_mapped == 0) return std::nullopt;
    IpcMemoryHandle shown{.number = number, .base = base};
    const std::lock_guard lock(mutex_);
    if (const auto known = handles_.find(number); known != handles_.end()) {
      shown.handle = known->second.handle;
      shown.gone = gone_;
      return shown;
    }
    const CurrentContext on(device);
    cudaIpcMemHandle_t handle{};
    static_assert(sizeof handle == sizeof shown.handle);
    // NOLINTNEXTLINE(performance-no-int-to-ptr): the driver's word for an address
    if (cudaIpcGetMemHandle(&handle, reinterpret_cast<void*>(base)) != cudaSuccess) {
      cudaGetLastError();
      return std::nullopt;
    }
    std::memcpy(shown.handle.data(), &handle, sizeof handle);
    drop_freed();
    constexpr std::size_t most = 1024;
    if (handles_.size() >= most) handles_.clear();
    handles_[number] = {shown.handle, base};
    shown.gone = gone_;
    return shown;
  }

  std::byte* map(int device, const IpcMemoryHandle& theirs) override {
    const CurrentContext on(device);
    cudaIpcMemHandle_t handle{};
    std::memcpy(&handle, theirs.handle.data(), sizeof handle);
    void* memory = nullptr;
    check(cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess),
          text("mapping another process's memory on GPU ", device));
    return static_cast<std::byte*>(memory);
  }

  void unmap(int device, std::byte* memory) noexcept override {
    try {
      const CurrentContext on(device);
      if (cudaIpcCloseMemHandle(memory) != cudaSuccess) cudaGetLastError();  // clears the error for the next call
    } catch (const Error&) {
      return;  // the driver has ended, and all mappings with it
    }
  }

  void copy(int device, StridedRuns to, StridedRuns from, std::size_t bytes, std::size_t blocks) override {
    const CurrentContext on(device);
    cudaStream_t const stream = stream_after_default(device);
    const cudaError_t begun = blocks == 1 ? cudaMemcpyAsync(to.first, from.first, bytes, cudaMemcpyDefault, stream)
                                          : cudaMemcpy2DAsync(to.first, to.stride, from.first, from.stride, bytes,
                                                              blocks, cudaMemcpyDefault, stream);
    check(begun, text("copying ", bytes * blocks, " bytes from or to GPU ", device));
    check(cudaStreamSynchronize(stream), text("copying ", bytes * blocks, " bytes from or to GPU ", device));
  }

  void pack(int device, const PackArguments& all, bool packs) override {
    const CurrentContext on(device);
    finish(launch(all, packs, stream_after_default(device)), device, text("packing ", all.count, " pieces"));
  }

  void combine(int device, DataType type, const CombineArguments& all) override {
    const CurrentContext on(device);
    finish(launch(type, all, stream_after_default(device)), device,
           text("combining ", all.input_count, " parts of ", all.count, " elements of ", to_string(type)));
  }

  Stream make_stream(int device) override {
    const CurrentContext on(device);
    cudaStream_t stream = nullptr;
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), text("making a stream on GPU ", device));
    return stream;
  }

  void end_stream(int device, Stream stream) noexcept override {
    try {
      const CurrentContext on(device);
      cudaStreamDestroy(of(stream));
    } catch (const Error&) {
      return;  // the driver has ended, and all streams with it
    }
  }

  int device_of(Stream stream) override {
    int device = 0;
    if (stream != nullptr)
      check(cudaStreamGetDevice(of(stream), &device), "asking for the GPU of a stream");
    else
      check(cudaGetDevice(&device), "asking for the current GPU");
    return device;
  }

  std::shared_ptr<StreamMark> mark(int device, Stream stream) override {
    if (stream != nullptr || device == MemoryLocation::host) device = device_of(stream);
    std::unique_ptr<CudaEvent> event = take_mark(device);
    event->record(stream);
    return {event.release(), [this](CudaEvent* used) { keep_mark(std::unique_ptr<CudaEvent>(used)); }};
  }

  std::shared_ptr<StreamMark> mark_time(int device, Stream stream) override {
    if (stream != nullptr || device == MemoryLocation::host) device = device_of(stream);
    auto made = std::make_shared<CudaEvent>(device, cudaEventDefault);
    made->record(stream);
    return made;
  }

  double microseconds(StreamMark& from, StreamMark& to) override {
    const auto& first = static_cast<CudaEvent&>(from);
    const CurrentContext on(first.device());
    float milliseconds = 0;
    check(cudaEventElapsedTime(&milliseconds, first.event(), static_cast<CudaEvent&>(to).event()),
          "asking how long work in a stream took");
    return 1e3 * static_cast<double>(milliseconds);
  }

  void wait_for(int device, Stream stream, StreamMark& mark) override {
    const CurrentContext on(device);
    const auto& marked = static_cast<CudaMark&>(mark);
    if (!marked.is_in(device, stream)) marked.come_before(device, stream);
  }

  std::unique_ptr<DeviceEvent> open(int device, const IpcEventHandle& theirs) override {
    return shared_events_.open(device, theirs);
  }

  void begin_copy(int device, std::byte* to, const std::byte* from, std::size_t bytes, Stream stream) override {
    const CurrentContext on(device);
    check(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, of(stream)),
          text("copying ", bytes, " bytes on GPU ", device));
  }

  void begin_combine(int device, DataType type, const CombineArguments& all, Stream stream) override {
    const CurrentContext on(device);
    check(launch(type, all, of(stream)), text("combining ", all.input_count, " parts on GPU ", device));
  }

  void begin_pack(int device, const PackArguments& all, bool packs, Stream stream) override {
    const CurrentContext on(device);
    check(launch(all, packs, of(stream)), text("packing ", all.count, " pieces on GPU ", device));
  }

  // A failed launch is only seen in the thread's last error.
  void begin_own(int device, const std::function<void()>& own) override {
    const CurrentContext on(device);
    cudaGetLastError();  // clears an earlier error of the program
    own();
    check(cudaGetLastError(), text("a kernel of the program, launched in a stream of GPU ", device));
  }

  bool is_captured(Stream stream) override {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    if (cudaStreamIsCapturing(of(stream), &status) != cudaSuccess) cudaGetLastError();  // the default stream fails
    return status != cudaStreamCaptureStatusNone;
  }

  void wait(Stream stream) override {
    const CurrentContext on(device_of(stream));
    check(cudaStreamSynchronize(of(stream)), "work in a stream");
  }

 protected:
  // Makes an event for threads only, if processes cannot share one.
  std::unique_ptr<DeviceEvent> make_event(int device) override {
    try {
      return shared_events_.make(device);
    } catch (const Error&) {
      return std::make_unique<CudaEvent>(device, cudaEventDisableTiming);
    }
  }

  // Uses the driver's pool, because freeing other memory would wait for the GPU's work. A communicator's first call
  // measures in streams that may be held back.
  std::shared_ptr<std::byte> allocate_for_a_moment(int device, std::size_t bytes) override {
    const CurrentContext on(device);
    cudaStream_t const stream = stream_of(device);
    void* memory = nullptr;
    check(cudaMallocAsync(&memory, bytes, stream), text("allocating ", bytes, " bytes on GPU ", device));
    check(cudaStreamSynchronize(stream), text("allocating ", bytes, " bytes on GPU ", device));
    return {static_cast<std::byte*>(memory), [device, stream](std::byte* used) {
              try {
                const CurrentContext there(device);
                if (cudaFreeAsync(used, stream) != cudaSuccess) cudaGetLastError();
              } catch (const Error&) {
                return;  // the driver has ended, and all memory with it
              }
            }};
  }

  bool begin_pinning(std::byte* memory, std::size_t bytes) noexcept override {
    try {
      const CurrentContext on(seen_.load(std::memory_order_relaxed));
      const bool has_begun = cudaHostRegister(memory, bytes, cudaHostRegisterPortable) == cudaSuccess;
      if (!has_begun) cudaGetLastError();  // clears the error for the next call
      return has_begun;
    } catch (const Error&) {
      return false;
    }
  }

  void end_pinning(std::byte* memory) noexcept override {
    try {
      const CurrentContext on(seen_.load(std::memory_order_relaxed));
      if (cudaHostUnregister(memory) != cudaSuccess) cudaGetLastError();
    } catch (const Error&) {
      return;  // the driver has ended
    }
  }

 private:
  // Reuses events: every call in a stream makes a mark, and making an event takes as long as recording it. A stream
  // that waits for the earlier mark is not affected by a new record.
  std::unique_ptr<CudaEvent> take_mark(int device) {
    {
      const std::lock_guard lock(mutex_);
      std::vector<std::unique_ptr<CudaEvent>>& kept = marks_[static_cast<std::size_t>(device)];
      if (!kept.empty()) {
        std::unique_ptr<CudaEvent> event = std::move(kept.back());
        kept.pop_back();
        return event;
      }
    }
    return std::make_unique<CudaEvent>(device, cudaEventDisableTiming);
  }

  void keep_mark(std::unique_ptr<CudaEvent> event) noexcept {
    const std::lock_guard lock(mutex_);
    std::vector<std::unique_ptr<CudaEvent>>& kept = marks_[static_cast<std::size_t>(event->device())];
    if (kept.size() < kept.capacity()) kept.push_back(std::move(event));
  }

  // Drops the objects of a device after cudaDeviceReset; they are invalid, so they cannot even be freed.
  void forget(int device) {
    streams_.at(static_cast<std::size_t>(device)) = nullptr;
    for (std::unique_ptr<CudaEvent>& each : marks_[static_cast<std::size_t>(device)]) static_cast<void>(each.release());
    marks_[static_cast<std::size_t>(device)].clear();
    forget_events(device);
    shared_events_.forget();
  }

  // Makes CUDA load all kernels and copies now, because a first use waits for all work on the GPU.
  void load_all(int device) {
    constexpr std::size_t half = 4096;
    const std::shared_ptr<std::byte> memory = allocate_for_a_moment(device, 2 * half);
    std::byte* const from = memory.get();
    cudaStream_t const stream = stream_of(device);
    const CurrentContext on(device);
    check(load_kernels(), text("loading the kernels of GPU ", device));
    check(cudaMemcpyAsync(from + half, from, half, cudaMemcpyDefault, stream), "a copy on a GPU");
    check(cudaMemcpy2DAsync(from + half, 64, from, 32, 16, 32, cudaMemcpyDefault, stream), "a copy on a GPU");
    check(cudaStreamSynchronize(stream), "a copy on a GPU");
  }

  static cudaStream_t of(Stream stream) { return static_cast<cudaStream_t>(stream); }

  void finish(cudaError_t begun, int device, std::string_view what) {
    check(begun, text(what, " on GPU ", device));
    check(cudaStreamSynchronize(stream_of(device)), text(what, " on GPU ", device));
  }

  cudaStream_t stream_of(int device) {
    const std::lock_guard lock(mutex_);
    cudaStream_t& stream = streams_.at(static_cast<std::size_t>(device));
    if (stream == nullptr) {
      stream = of(make_stream(device));
      contexts_[static_cast<std::size_t>(device)] = number_of_context(device);
    }
    return stream;
  }

  // Returns the device's stream, with its next work behind the work now in the default stream.
  cudaStream_t stream_after_default(int device) {
    cudaStream_t const stream = stream_of(device);
    come_after_default(device, stream);
    return stream;
  }

  // Finds allocations that were shown and are freed: their place holds another allocation now, or none.
  void drop_freed() {
    for (auto each = handles_.begin(); each != handles_.end();) {
      unsigned long long number = 0;
      std::array asked = {CU_POINTER_ATTRIBUTE_BUFFER_ID};
      std::array<void*, 1> answers = {&number};
      const bool is_there =
          driver()->attributes(asked.size(), asked.data(), answers.data(), each->second.base) == CUDA_SUCCESS;
      if (is_there && number == each->first) {
        ++each;
        continue;
      }
      std::copy_backward(gone_.begin(), gone_.end() - 1, gone_.end());
      gone_.front() = each->first;
      each = handles_.erase(each);
    }
  }

  struct IpcHandleEntry {
    std::array<std::byte, sizeof(cudaIpcMemHandle_t)> handle;
    CUdeviceptr base;
  };

  std::mutex mutex_;
  std::map<std::uint64_t, IpcHandleEntry> handles_;  // by allocation
  std::array<std::uint64_t, 8> gone_{};
  mutable std::atomic<int> seen_ = 0;  // a GPU on which data was found
  SharedEventPool shared_events_;
  std::vector<cudaStream_t> streams_;                           // by device; they end with the process
  std::vector<std::vector<std::unique_ptr<CudaEvent>>> marks_;  // by device; not in use
  std::vector<unsigned long long> contexts_;                    // by device: the contexts of the objects here
  std::vector<unsigned long long> loaded_;                      // by device: the contexts that have loaded all kernels
};

}  // namespace

std::unique_ptr<DeviceBackend> make_backend(std::string& why_none) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0 || driver() == nullptr) {
    why_none = why_unfit(error, error == cudaSuccess && count > 0 ? missing_in_driver() : nullptr);
    cudaGetLastError();
    return nullptr;
  }
  return std::make_unique<CudaBackend>(count);
}

}  // namespace lockstep::gpu
