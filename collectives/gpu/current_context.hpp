// SPDX-License-Identifier: Apache-2.0
// Changes the calling thread's current GPU for a while, and turns CUDA's errors into Lockstep's.
//
// cudaSetDevice is not enough, because a thread that has used no GPU has no context. The runtime then reports GPU 0,
// and setting that again would make a context there. Every process on another GPU would pay some hundred MB for it. So
// contexts are pushed onto the driver's stack and popped again. Afterwards the thread has the same context as before:
// none, or even one that the program made itself.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::gpu {

// Throws Error out_of_memory or device. Its text begins with the second argument, which names the attempted work.
[[noreturn]] void refuse(cudaError_t error, std::string_view what);

// Throws as refuse() does if the call failed.
inline void check(cudaError_t error, std::string_view what) {
  if (error != cudaSuccess) [[unlikely]]
    refuse(error, what);
}
// Takes the driver's errors, which have the runtime's numbers.
inline void check(CUresult error, std::string_view what) { check(static_cast<cudaError_t>(error), what); }

// Holds calls of the driver that the runtime lacks, or that it has only with a new context.
struct DriverFunctions {
  CUresult (*attributes)(unsigned, CUpointer_attribute*, void**, CUdeviceptr) = nullptr;
  CUresult (*device)(CUdevice*, int) = nullptr;
  CUresult (*retain)(CUcontext*, CUdevice) = nullptr;
  CUresult (*current)(CUcontext*) = nullptr;
  CUresult (*push)(CUcontext) = nullptr;
  CUresult (*pop)(CUcontext*) = nullptr;
  CUresult (*state)(CUdevice, unsigned*, int*) = nullptr;
  CUresult (*number)(CUcontext, unsigned long long*) = nullptr;
  CUresult (*batch)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned) = nullptr;
  CUresult (*wait)(CUstream, CUdeviceptr, std::uint32_t, unsigned) = nullptr;
};
// Looks up a call by its name and the CUDA version of its signature; returns null if the driver lacks it.
using FindEntry = void* (*)(const char* name, unsigned since);
// Fills in all calls. Returns null on success, otherwise the name of a missing one.
const char* find_all(FindEntry find, DriverFunctions& all);
// Returns the process's driver calls, or null if the driver lacks any; missing_in_driver() then returns its name.
const DriverFunctions* driver();
const char* missing_in_driver();
// Says why no GPU is usable, and the remedy. `error` is the result of the runtime's first call; `missing` names a
// call that the driver lacks, or is null.
std::string why_unfit(cudaError_t error, const char* missing);

// Tell about the GPU's primary context without making one: whether it exists, and its number. No other context has had
// that number; 0 means none, or an unknown one. is_used() throws Error device.
bool is_used(int device);
unsigned long long number_of_context(int device);

// Pushes the GPU's primary context. Returns false, and pushes nothing, if it is current already. Throws Error device.
bool enter_context(int device);
// Pops the context that enter_context() pushed.
void leave_context() noexcept;

// Makes a GPU the calling thread's current one while the object lives.
class CurrentContext {
 public:
  explicit CurrentContext(int device) : has_entered_(enter_context(device)) {}
  ~CurrentContext() {
    if (has_entered_) leave_context();
  }
  CurrentContext(const CurrentContext&) = delete;
  CurrentContext& operator=(const CurrentContext&) = delete;

 private:
  bool has_entered_;
};

}  // namespace lockstep::gpu
