// SPDX-License-Identifier: Apache-2.0
#include "collectives/gpu/current.hpp"

#include <array>
#include <atomic>
#include <optional>

namespace lockstep::gpu {
namespace {

template <class F>
bool find(F*& function, const char* name, unsigned since) {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult result = cudaDriverEntryPointSymbolNotFound;
  if (cudaGetDriverEntryPointByVersion(name, &found, since, cudaEnableDefault, &result) != cudaSuccess)
    cudaGetLastError();
  function = reinterpret_cast<F*>(found);
  return function != nullptr;
}

std::optional<Driver> find_driver() {
  Driver all;
  const bool has_all = find(all.attributes, "cuPointerGetAttributes", 7000) && find(all.device, "cuDeviceGet", 2000) &&
                       find(all.retain, "cuDevicePrimaryCtxRetain", 7000) &&
                       find(all.current, "cuCtxGetCurrent", 4000) && find(all.push, "cuCtxPushCurrent", 4000) &&
                       find(all.pop, "cuCtxPopCurrent", 4000);
  return has_all ? std::optional(all) : std::nullopt;
}

// The runtime's own, which lives as long as the process from the first work on; asked for several times, it is the
// same.
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

const Driver* driver() {
  static const std::optional<Driver> found = find_driver();
  return found ? &*found : nullptr;
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
  driver()->pop(&ours);
}

}  // namespace lockstep::gpu
