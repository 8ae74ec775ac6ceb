// SPDX-License-Identifier: Apache-2.0
// Prepares calls of many tensors. If the members share a GPU, launches pack and unpack the tensors in its memory.
#include <chrono>
#include <exception>
#include <thread>

#include "collectives/communicator/communicator_core_gpus.hpp"
#include "collectives/node/gpu_path.hpp"
#include "collectives/planner.hpp"
#include "topology/base/keep.hpp"

namespace lockstep::detail {

int CommunicatorCore::packed_on(const CallRequest& whole, std::span<const CallRequest> tensors) {
  int device = DeviceCall::anywhere;
  for (const CallRequest& each : tensors) {
    const int its = device_of(each);
    if (device != DeviceCall::anywhere && its != DeviceCall::anywhere && its != device)
      return gpu::MemoryLocation::host;
    if (its != DeviceCall::anywhere) device = its;
  }
  if (device < 0) return gpu::MemoryLocation::host;
  return members_.or_refuse([&] {
    const auto plan = members_.planner().plan(spec_of(with_options(whole), size(), rank(), partitions_));
    bool works = false;
    if (staging_.can_keep_order(whole, *plan)) members_.engine().alone([&] { works = works_on(device, whole, *plan); });
    return works ? device : gpu::MemoryLocation::host;
  });
}

// True if the node's members would work in that GPU's memory, as far as this one knows, and faster than on the host.
// In a stream they do so at any cost, since the host would have to wait for the work before the call.
bool CommunicatorCore::works_on(int device, const CallRequest& whole, const Plan& plan) {
  const node::Gpus* const shared = members_.engine().world().room()->gpus();
  if (shared != nullptr && (!shared->can_map() || shared->number_of(device) == node::Gpus::unknown)) return false;
  if (whole.stream) return gpu::backend()->device_of(*whole.stream) == device;
  if (whole.output.count * whole.element_bytes < node::gpu_asked_from) return false;
  // Processes that measured here would all do it at once and disturb each other. So the first batch uses the GPU
  // without a measurement, and its result serves the later ones.
  const bool have_agreed = shared != nullptr && shared->is_proven();
  if (shared != nullptr && !have_agreed && !shared->was_left_unproven()) return true;
  return node::pays_on_gpus(plan.spec, size(), have_agreed ? shared->costs() : gpu::backend()->costs(device), true);
}

StagingBuffer CommunicatorCore::take_on_gpu(int device, std::size_t bytes) {
  return members_.or_refuse([&] { return scratch_.take(device, bytes); });
}

// Keeps the memory until the stream has done its present work.
void CommunicatorCore::hold_in_stream(const BoundCall& bound_call) noexcept {
  if (!bound_call.packs_on_gpu) return;
  try {
    scratch_.use_until(gpu::backend()->mark(gpu::MemoryLocation::host, *bound_call.stream), bound_call.staged);
  } catch (const std::exception&) {
    keep_for_ever(bound_call.staged);  // The state of a failed GPU is unknown.
  }
}

// Waits at most 1 s for the stream, because the program may free its memory after a failure.
void CommunicatorCore::wait_a_moment_for_stream(const BoundCall& bound_call) noexcept {
  if (!bound_call.packs_on_gpu) return;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  try {
    const auto mark = gpu::backend()->mark(gpu::MemoryLocation::host, *bound_call.stream);
    while (!mark->is_reached() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  } catch (const std::exception&) {
    return;  // Nothing runs in the stream any more.
  }
}

}  // namespace lockstep::detail
