// What gpu-probe's CUDA files share: checks, device memory, timing, and the kernels.
// Everything here runs on device 0 of CUDA_VISIBLE_DEVICES; kernels that wait give up by themselves, so that a GPU is
// never left spinning. The driver API is found through the runtime and is not linked.
// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <functional>

#include "probe.hpp"

namespace gpu_probe {

inline void check(cudaError_t status, std::source_location where = std::source_location::current()) {
  if (status == cudaSuccess) return;
  const std::string sentence =
      text("CUDA says ", cudaGetErrorName(status), ", \"", cudaGetErrorString(status), "\", at ", place(where));
  if (status == cudaErrorInsufficientDriver) throw NoGpu("no driver: " + sentence);
  if (status == cudaErrorNoDevice) throw NoGpu("no GPU: " + sentence);
  throw Refused(sentence);
}

// Whether a query found work unfinished; the runtime remembers that as an error, which the next check must not see.
inline bool unfinished(cudaError_t query) {
  if (query == cudaErrorNotReady) cudaGetLastError();
  return query == cudaErrorNotReady;
}

// A function of the driver API, by the name and version that cuda.h documents.
template <class F>
F* driver_function(const char* name, unsigned version = 12000) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found{};
  check(cudaGetDriverEntryPointByVersion(name, &address, version, cudaEnableDefault, &found));
  require(found == cudaDriverEntryPointSuccess && address != nullptr, text("the driver has no ", name));
  return reinterpret_cast<F*>(address);
}

inline void check_driver(CUresult status, std::source_location where = std::source_location::current()) {
  if (status == CUDA_SUCCESS) return;
  const char* name = nullptr;
  driver_function<decltype(cuGetErrorName)>("cuGetErrorName")(status, &name);
  throw Refused(text("the driver says ", name != nullptr ? name : "something unknown", " at ", place(where)));
}

class DeviceMemory {
 public:
  explicit DeviceMemory(std::size_t size) : size_(size) { check(cudaMalloc(&data_, size)); }
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;
  template <class T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  std::size_t size() const { return size_; }

 private:
  void* data_ = nullptr;
  std::size_t size_;
};

// Host memory of which every page is one file in memory, so that another process can map it too.
class SharedMemory {
 public:
  explicit SharedMemory(std::size_t size);  // made here
  SharedMemory(int descriptor, std::size_t size);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;
  int descriptor() const { return descriptor_; }
  template <class T = void>
  T* as() const {
    return static_cast<T*>(data_);
  }
  void* registered();  // the address that device code uses

 private:
  int descriptor_;
  std::size_t size_;
  void* data_ = nullptr;
  bool registered_ = false;
};

// A gibibyte, or less on a small or busy GPU; whole multiples of 16 MiB.
std::size_t large_size();

// Median over several runs of what the GPU itself measures; warmed up before.
double median_seconds(const std::function<void()>& enqueue, int repeats = 9);

// Fills with a pattern of the seed; counts the words that differ from it.
void fill(void* data, std::size_t size, std::uint32_t seed);
std::uint64_t count_wrong(const void* data, std::size_t size, std::uint32_t seed);

void add_into(void* into, const void* from, std::size_t size);  // unsigned words, 16 bytes a thread and step
void work(std::uint64_t steps);  // one block that computes, for comparing one process with two; does not wait
void count_up(std::uint32_t* word, std::uint32_t limit_ms);  // one thread, for so long; does not wait
void nothing();                                              // an empty kernel
void write_outside();                                        // the planted fault that compute-sanitizer must find

// Ends a process, and returns when the system says that it is gone (probe_ends.cu).
constexpr int gone_within_ms = 5000;
void kill_and_wait(pid_t process);

struct Meetings {
  std::uint32_t reached;
  std::uint64_t nanoseconds;
};

// One thread writes 1, 2, ... to mine and waits each time until theirs is as far, for at most limit_ms altogether.
Meetings meet_by_flags(std::uint32_t* mine, std::uint32_t* theirs, std::uint32_t rounds, std::uint32_t limit_ms);

}  // namespace gpu_probe
