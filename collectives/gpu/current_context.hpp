// SPDX-License-Identifier: Apache-2.0
// The calling thread's current GPU, changed for a while; and errors of CUDA as ours.
//
// cudaSetDevice would do, were it not for what comes after: a thread that has used no GPU yet has no context, and the
// runtime says that its GPU is 0. Put back by cudaSetDevice, 0 would get a context in every process that works on
// another GPU, some hundred MB each. So contexts are laid on the driver's stack and taken off again: what was current
// is so again, be it none, be it one that the program has made itself.
#pragma once

#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::gpu {

[[noreturn]] void refuse(cudaError_t error, std::string_view what);

inline void check(cudaError_t error, std::string_view what) {
  if (error != cudaSuccess) [[unlikely]]
    refuse(error, what);
}
// The driver's errors have the runtime's numbers.
inline void check(CUresult error, std::string_view what) { check(static_cast<cudaError_t>(error), what); }

// Calls that the runtime has not, or not without making a context.
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
// By the name of a call and the version of CUDA since which it is as it is; nothing, where it is not there.
using FindEntry = void* (*)(const char* name, unsigned since);
// Nothing where all are there; else the name of one that is not.
const char* find_all(FindEntry find, DriverFunctions& all);
// The process's own; nothing, where it lacks one of them, which is named then.
const DriverFunctions* driver();
const char* missing_in_driver();
// What is there, what this build needs, and how to come by it. `error`: of the runtime's first call; `missing`: a call
// that the driver lacks.
std::string why_unfit(cudaError_t error, const char* missing);

// Whether the process has a context there already, and the number of this one, which no other has had: 0 where it has
// none, or none that it has used before. Asking makes none.
bool is_used(int device);
unsigned long long number_of_context(int device);

// Returns whether something was put on the stack.
bool enter_context(int device);
void leave_context() noexcept;

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
