// SPDX-License-Identifier: Apache-2.0
// Tensors that become one call: among members that share a GPU in its memory, packed and unpacked there by launches.
#include <chrono>
#include <exception>
#include <thread>

#include "collectives/communicator/team_gpus.hpp"
#include "collectives/node/gpu_ways.hpp"
#include "collectives/planner.hpp"
#include "topology/base/keep.hpp"

namespace lockstep::detail {

int Team::packed_on(const Ask& whole, std::span<const Ask> tensors) {
  int device = OnGpus::anywhere;
  for (const Ask& each : tensors) {
    const int its = device_of(each);
    if (device != OnGpus::anywhere && its != OnGpus::anywhere && its != device) return gpu::Where::host;
    if (its != OnGpus::anywhere) device = its;
  }
  if (device < 0) return gpu::Where::host;
  return or_refuse([&] {
    const auto plan = planner_->plan(spec_of(with_options(whole), size(), rank(), cuts_));
    bool works = false;
    if (can_keep_order(whole, *plan)) engine_->alone([&] { works = works_on(device, whole, *plan); });
    return works ? device : gpu::Where::host;
  });
}

// Whether members of a node would work on what is in that memory, as far as this one knows, and sooner than by the
// host. In a stream they do so however long it takes, since the host would wait for what is before the call.
bool Team::works_on(int device, const Ask& whole, const Plan& plan) {
  const node::Gpus* const shared = engine_->world().room()->gpus();
  if (shared != nullptr && (!shared->can_map() || shared->number_of(device) == node::Gpus::unknown)) return false;
  if (whole.stream) return gpu::layer()->device_of(*whole.stream) == device;
  if (whole.output.count * whole.element_bytes < node::gpu_asked_from) return false;
  // Processes that measured here would all do so at once, and find how they disturb each other. So the first batch goes
  // there without knowing, and what they agree on in it is for the others.
  const bool have_agreed = shared != nullptr && shared->is_proven();
  if (shared != nullptr && !have_agreed && !shared->was_left_unproven()) return true;
  return node::pays_on_gpus(plan.spec, size(), have_agreed ? shared->costs() : gpu::layer()->costs(device), true);
}

Staged Team::take_on_gpu(int device, std::size_t bytes) {
  return or_refuse([&] { return scratch_.take(device, bytes); });
}

// What is in its stream by now uses that memory.
void Team::hold_in_stream(const Ready& ready) noexcept {
  if (!ready.packs_on_gpu) return;
  try {
    scratch_.use_until(gpu::layer()->mark(gpu::Where::host, *ready.stream), ready.staged);
  } catch (const std::exception&) {
    keep_for_ever(ready.staged);  // of a GPU that has failed nobody knows
  }
}

// Whoever hears of a failure may free memory that a stream still uses.
void Team::wait_a_moment_for_stream(const Ready& ready) noexcept {
  if (!ready.packs_on_gpu) return;
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  try {
    const auto mark = gpu::layer()->mark(gpu::Where::host, *ready.stream);
    while (!mark->is_reached() && std::chrono::steady_clock::now() < limit) std::this_thread::yield();
  } catch (const std::exception&) {
    return;  // nothing runs there any more
  }
}

void Team::run_all(std::span<const Ready> calls, Origin origin) {
  const Use use(*this, origin);
  refuse_if_closed();
  for (const Ready& ready : calls) refuse_if_freed(ready, origin);
  const Handle handle = take_slot(origin);
  begin_all(calls, handle);
  if (!stays_in_stream(handle)) wait_inside(handle);
}

}  // namespace lockstep::detail
