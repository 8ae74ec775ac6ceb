// SPDX-License-Identifier: Apache-2.0
// Looks up the driver's calls once, and pushes and pops contexts by them.
#include "collectives/gpu/current_context.hpp"

#include <array>
#include <atomic>
#include <type_traits>

namespace lockstep::gpu {
namespace {

void* entry_of(const char* name, unsigned since) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, &found, since, cudaEnableDefault, &result) != cudaSuccess)
    cudaGetLastError();
  return found;
}

struct DriverSearch {
  DriverFunctions all;
  const char* missing = find_all(entry_of, all);
};
const DriverSearch& found_driver() {
  static const DriverSearch found;
  return found;
}

std::string version_text(int version) { return text(version / 1000, '.', version % 1000 / 10); }

// Returns the runtime's own context, which lives from the first work until the process ends. Repeated requests return
// the same one.
CUcontext context_of(int device) {
  static std::array<std::atomic<CUcontext>, 256> known = {};
  std::atomic<CUcontext>& kept = known.at(static_cast<std::size_t>(device));
  CUcontext context = kept.load(std::memory_order_acquire);
  if (context != nullptr) return context;
  const std::string what = text("using GPU ", device);
  CUdevice its = 0;
  check(driver()->device(&its, device), what);
  check(driver()->retain(&context, its), what);
  kept.store(context, std::memory_order_release);
  return context;
}

}  // namespace

const char* find_all(FindEntry find, DriverFunctions& all) {
  const char* missing = nullptr;
  const auto look = [&](auto& function, const char* name, unsigned since) {
    void* const found = find(name, since);
    if (found == nullptr) missing = name;
    function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(found);
  };
  look(all.attributes, "cuPointerGetAttributes", 7000);
  look(all.device, "cuDeviceGet", 2000);
  look(all.retain, "cuDevicePrimaryCtxRetain", 7000);
  look(all.current, "cuCtxGetCurrent", 4000);
  look(all.push, "cuCtxPushCurrent", 4000);
  look(all.pop, "cuCtxPopCurrent", 4000);
  look(all.state, "cuDevicePrimaryCtxGetState", 7000);
  look(all.number, "cuCtxGetId", 12000);
  look(all.batch, "cuStreamBatchMemOp", 11070);
  look(all.wait, "cuStreamWaitValue32", 11070);
  return missing;
}

const DriverFunctions* driver() { return missing_in_driver() == nullptr ? &found_driver().all : nullptr; }
const char* missing_in_driver() { return found_driver().missing; }

std::string why_unfit(cudaError_t error, const char* missing) {
  int known = 0;
  if (cudaDriverGetVersion(&known) != cudaSuccess) known = 0;
  if (known == 0 && error != cudaSuccess) return text("this process sees no GPU: ", cudaGetErrorString(error));
  if (missing == nullptr && error != cudaErrorInsufficientDriver)
    return text("this process sees no GPU: ",
                error != cudaSuccess ? cudaGetErrorString(error) : "the driver shows none (CUDA_VISIBLE_DEVICES?)");
  return text("the GPU's driver is too old: it knows CUDA ", version_text(known),
              missing != nullptr ? text(" and has no ", missing) : "", ", this build needs ",
              version_text(CUDART_VERSION), ": install a newer driver, or build with CUDA ", version_text(known));
}

bool is_used(int device) {
  const DriverFunctions* const known = driver();
  if (known == nullptr || known->device == nullptr || known->state == nullptr) return false;
  CUdevice its = 0;
  unsigned flags = 0;
  int is_active = 0;
  check(known->device(&its, device), text("looking for GPU ", device));
  check(known->state(its, &flags, &is_active), text("asking whether GPU ", device, " is used"));
  return is_active != 0;
}

unsigned long long number_of_context(int device) {
  const DriverFunctions* const known = driver();
  unsigned long long number = 0;
  if (known == nullptr || known->number == nullptr || !is_used(device)) return 0;
  return known->number(context_of(device), &number) == CUDA_SUCCESS ? number : 0;
}

bool enter_context(int device) {
  CUcontext const wanted = context_of(device);
  CUcontext before = nullptr;
  check(driver()->current(&before), "asking for the current GPU");
  if (before == wanted) return false;
  check(driver()->push(wanted), text("using GPU ", device));
  return true;
}

void leave_context() noexcept {
  CUcontext ours = nullptr;
  const DriverFunctions* const known = driver();  // not null, because something was entered by it
  if (known != nullptr && known->pop != nullptr) known->pop(&ours);
}

}  // namespace lockstep::gpu
