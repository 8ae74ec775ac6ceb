// SPDX-License-Identifier: Apache-2.0
// Finds the process's backend once, and keeps pinned memory and events for reuse.
#include "collectives/gpu/device_backend.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace lockstep::gpu {
namespace {

struct BackendSearch {
  std::string why_none;
  std::unique_ptr<DeviceBackend> backend = make_backend(why_none);
};

// Is never destroyed, because memory of a device may be freed when the process ends.
BackendSearch& found() {
  static auto& all = *new BackendSearch;
  return all;
}

}  // namespace

DeviceBackend* own_backend() { return found().backend.get(); }

// Several threads may call this at once; a backend that BackendOverride has set stays.
DeviceBackend* detail::find() {
  DeviceBackend* const own = found().backend.get();
  DeviceBackend* nothing = nullptr;
  if (!is_known.load(std::memory_order_acquire)) current.compare_exchange_strong(nothing, own);
  is_known.store(true, std::memory_order_release);
  return current.load();
}

// Rounds sizes up to steps of an eighth, so that memory given back fits the next request.
std::shared_ptr<std::byte> DeviceBackend::pinned(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  constexpr std::size_t least = 4096;
  const std::size_t unit = std::max(least, std::bit_floor(bytes) / 8);
  const std::size_t size = (bytes + unit - 1) / unit * unit;
  std::byte* memory = take_kept(size);
  if (memory == nullptr) memory = allocate_pinned(size);
  return {memory, [this, size](std::byte* used) {
            if (!keep(used, size)) free_pinned(used);
          }};
}

std::byte* DeviceBackend::take_kept(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(kept_, bytes, &PinnedMemory::bytes);
  return found == kept_.end() ? nullptr : std::exchange(*found, PinnedMemory{}).memory;
}

// Keeps at most 256 MiB: pinning is slow, but pinned memory is taken from all others on the machine.
bool DeviceBackend::keep(std::byte* memory, std::size_t bytes) {
  constexpr std::size_t most = 256U << 20U;
  const std::lock_guard lock(mutex_);
  std::size_t all = bytes;
  for (const PinnedMemory& each : kept_) all += each.bytes;
  const auto free = std::ranges::find(kept_, std::size_t{0}, &PinnedMemory::bytes);
  if (free == kept_.end() || all > most) return false;
  *free = {bytes, memory};
  return true;
}

DeviceEvent& DeviceBackend::take_event(int device) {
  const std::lock_guard lock(mutex_);
  look_for_free();
  const auto fits = [device](const CachedEvent& each) { return each.is_free && each.device == device; };
  const auto known = std::ranges::find_if(events_, fits);
  if (known != events_.end()) {
    known->is_free = false;
    return *known->event;
  }
  events_.push_back({make_event(device), device});
  return *events_.back().event;
}

void DeviceBackend::give_back(DeviceEvent& event) {
  const std::lock_guard lock(mutex_);
  const auto is_it = [&](const CachedEvent& each) { return each.event.get() == &event; };
  std::ranges::find_if(events_, is_it)->is_free = true;
}

void DeviceBackend::give_back_when(DeviceEvent& event, std::function<bool()> nobody_waits) {
  const std::lock_guard lock(mutex_);
  const auto is_it = [&](const CachedEvent& each) { return each.event.get() == &event; };
  std::ranges::find_if(events_, is_it)->nobody_waits = std::move(nobody_waits);
}

void DeviceBackend::look_for_free() {
  for (CachedEvent& each : events_) {
    if (!each.nobody_waits || !each.nobody_waits()) continue;
    each.nobody_waits = nullptr;
    each.is_free = true;
  }
}

void DeviceBackend::forget_events(int device) {
  const std::lock_guard lock(mutex_);
  std::erase_if(events_, [device](CachedEvent& each) {
    if (each.device != device || !each.is_free) return false;
    static_cast<void>(each.event.release());  // the device was reset, so it may not even be freed
    return true;
  });
}

std::size_t DeviceBackend::events_in_use() {
  const std::lock_guard lock(mutex_);
  look_for_free();
  return static_cast<std::size_t>(std::ranges::count(events_, false, &CachedEvent::is_free));
}

void DeviceBackend::free_kept() {
  const std::lock_guard lock(mutex_);
  for (PinnedMemory& each : kept_) {
    if (each.memory != nullptr) free_pinned(each.memory);
    each = {};
  }
}

// Counts holders, because threads of one process share this memory and it can be pinned only once.
std::shared_ptr<const void> DeviceBackend::pin(std::shared_ptr<std::byte> memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  const auto held = holders_.find(memory.get());
  if (held != holders_.end())
    ++held->second;
  else if (begin_pinning(memory.get(), bytes))
    holders_[memory.get()] = 1;
  else
    return nullptr;
  std::byte* const first = memory.get();
  return {first, [this, memory = std::move(memory)](const void* /*first*/) { unpin(memory.get()); }};
}

void DeviceBackend::unpin(std::byte* memory) noexcept {
  const std::lock_guard lock(mutex_);
  const auto held = holders_.find(memory);
  if (--held->second > 0) return;
  holders_.erase(held);
  end_pinning(memory);
}

std::string why_none() { return backend() != nullptr ? "" : found().why_none; }

BackendOverride::BackendOverride(std::unique_ptr<DeviceBackend> backend)
    : backend_(std::move(backend)), before_(detail::find()) {
  detail::current.store(backend_.get());
}

DeviceGuard::DeviceGuard(int device) : has_entered_(device != MemoryLocation::host) {
  if (has_entered_) backend()->enter(device);
}
DeviceGuard::~DeviceGuard() {
  if (has_entered_) backend()->leave();
}

BackendOverride::~BackendOverride() {
  detail::current.store(before_);
  if (backend_) backend_->free_kept();
}

}  // namespace lockstep::gpu
