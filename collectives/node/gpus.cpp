// SPDX-License-Identifier: Apache-2.0
// Numbers the GPUs, and turns handles of other processes into addresses and events.
#include "collectives/node/gpus.hpp"

#include <algorithm>

#include "topology/base/error.hpp"

namespace lockstep::node {

std::vector<std::string> Gpus::serials() {
  std::vector<std::string> all;
  gpu::DeviceBackend* const backend = gpu::backend();
  if (backend == nullptr) return all;
  try {
    for (int device = 0; device < backend->devices(); ++device) all.push_back(backend->id(device));
  } catch (const Error&) {
    all.clear();  // a GPU without an identity cannot be shared
  }
  return all;
}

Gpus::Gpus(std::size_t me, std::vector<std::uint64_t> processes, std::vector<int> devices)
    : backend_(*gpu::backend()),
      me_(me),
      processes_(std::move(processes)),
      devices_(std::move(devices)),
      mappings_(backend_, processes_.size()) {}

std::unique_ptr<Gpus> Gpus::find(const std::vector<std::vector<std::string>>& serials, int me,
                                 std::vector<std::uint64_t> processes) {
  const std::vector<std::string>& mine = serials[static_cast<std::size_t>(me)];
  std::vector<int> devices;
  for (const std::string& serial : serials.front()) {
    const auto sees_it = [&](const auto& theirs) { return std::ranges::find(theirs, serial) != theirs.end(); };
    if (std::ranges::all_of(serials, sees_it))
      devices.push_back(static_cast<int>(std::ranges::find(mine, serial) - mine.begin()));
  }
  if (devices.empty()) return nullptr;
  return std::unique_ptr<Gpus>(new Gpus(static_cast<std::size_t>(me), std::move(processes), std::move(devices)));
}

int Gpus::number_of(int device) const {
  const auto found = std::ranges::find(devices_, device);
  return found == devices_.end() ? unknown : static_cast<int>(found - devices_.begin());
}

BufferAddress Gpus::export_address(const void* data, int device, gpu::IpcMemoryHandle& handle) const {
  BufferAddress place;
  place.device = number_of(device);
  if (place.device == unknown || !agreement_.can_map()) return place;
  const auto found = backend_.show(data);
  if (!found) return place;
  handle = *found;
  place.memory = BufferAddress::mapped;
  place.offset = reinterpret_cast<std::uintptr_t>(data) - handle.base;
  return place;
}

std::byte* Gpus::reach(int member, const BufferAddress& place, const gpu::IpcMemoryHandle& handle, int device,
                       bool is_copied) {
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, told as a number
  if (is_here(member)) return reinterpret_cast<std::byte*>(handle.base + place.offset);
  const int theirs = device_of(static_cast<int>(place.device));
  return mappings_.find(processes_[static_cast<std::size_t>(member)], handle, device < 0 ? theirs : device, theirs,
                        is_copied) +
         place.offset;
}

void Gpus::refuse_to_map() {
  agreement_.refuse();
  mappings_.drop_all();
}

gpu::DeviceEvent& Gpus::open(int member, const gpu::IpcEventHandle& handle, int number) {
  std::unique_ptr<gpu::DeviceEvent>& known = opened_[{processes_[static_cast<std::size_t>(member)], handle.number}];
  if (known == nullptr) known = backend_.open(device_of(number), handle);
  return *known;
}

void Gpus::release_waits_for(int member) {
  for (const auto& [key, event] : opened_) {
    // Null: the event could not be opened.
    if (event != nullptr && key.first == processes_[static_cast<std::size_t>(member)]) event->release_waits();
  }
}

void FailureReason::keep(std::string_view why) {
  const std::lock_guard lock(mutex_);
  reason_ = why;
  is_known_.store(true, std::memory_order_release);
}

std::string FailureReason::take() {
  const std::lock_guard lock(mutex_);
  is_known_.store(false, std::memory_order_release);
  return std::exchange(reason_, {});
}

}  // namespace lockstep::node
