// SPDX-License-Identifier: Apache-2.0
// Keeps the mappings of other processes' memory, and drops those that their owners have freed.
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

std::unique_ptr<Gpus> Gpus::find(const std::vector<std::vector<std::string>>& serials, int me,
                                 std::vector<std::uint64_t> processes) {
  std::unique_ptr<Gpus> all(new Gpus);
  all->me_ = static_cast<std::size_t>(me);
  const std::vector<std::string>& mine = serials[all->me_];
  for (const std::string& serial : serials.front()) {
    const auto sees_it = [&](const auto& theirs) { return std::ranges::find(theirs, serial) != theirs.end(); };
    if (std::ranges::all_of(serials, sees_it))
      all->devices_.push_back(static_cast<int>(std::ranges::find(mine, serial) - mine.begin()));
  }
  if (all->devices_.empty()) return nullptr;
  all->backend_ = gpu::backend();
  all->processes_ = std::move(processes);
  return all;
}

Gpus::~Gpus() {
  for (const Mapping& each : mappings_) unmap(each);
  for (const Mapping& each : unmap_later_) unmap(each);
}

void Gpus::unmap_what_was_let_go(bool is_in_stream) {
  constexpr std::size_t most = 64;
  if (unmap_later_.empty() || (is_in_stream && unmap_later_.size() < most)) return;
  if (events_ != nullptr && events_->is_working()) return;
  for (const Mapping& each : unmap_later_) unmap(each);
  unmap_later_.clear();
}

void Gpus::unmap(const Mapping& mapping) noexcept { backend_->unmap(mapping.device, mapping.here); }

int Gpus::number_of(int device) const {
  const auto found = std::ranges::find(devices_, device);
  return found == devices_.end() ? unknown : static_cast<int>(found - devices_.begin());
}

BufferAddress Gpus::show(const void* data, int device, gpu::IpcMemoryHandle& card) const {
  BufferAddress place;
  place.device = number_of(device);
  if (place.device == unknown || !can_map()) return place;
  const auto found = backend_->show(data);
  if (!found) return place;
  card = *found;
  place.memory = BufferAddress::mapped;
  place.offset = reinterpret_cast<std::uintptr_t>(data) - card.base;
  return place;
}

// Drops mappings of memory that its owner has freed, so that the memory does not stay in use.
void Gpus::forget(std::uint64_t process, const gpu::IpcMemoryHandle& card) {
  std::erase_if(mappings_, [&](const Mapping& each) {
    const bool is_gone = each.process == process && std::ranges::count(card.gone, each.number) > 0;
    if (is_gone) unmap_later_.push_back(each);
    return is_gone;
  });
}

// Maps the allocation on that GPU, or on the owner's.
Gpus::Mapping Gpus::map(const gpu::IpcMemoryHandle& card, int device, int theirs) {
  try {
    return {.device = device, .here = backend_->map(device, card)};
  } catch (const Error&) {
    if (device == theirs) throw;
    return {.device = theirs, .here = backend_->map(theirs, card)};
  }
}

std::byte* Gpus::reach(int member, const BufferAddress& place, const gpu::IpcMemoryHandle& card, int device,
                       bool is_copied) {
  const std::uint64_t process = processes_[static_cast<std::size_t>(member)];
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, told as a number
  if (process == processes_[me_]) return reinterpret_cast<std::byte*>(card.base + place.offset);
  const int theirs = device_of(static_cast<int>(place.device));
  if (device < 0) device = theirs;
  ++uses_;
  const auto is_it = [&](const Mapping& each) {
    return each.process == process && each.number == card.number &&
           (each.device == device || (is_copied && each.device == theirs));
  };
  if (const auto known = std::ranges::find_if(mappings_, is_it); known != mappings_.end()) {
    known->used = uses_;
    return known->here + place.offset;
  }
  forget(process, card);
  const std::size_t most = most_mapped * processes_.size();
  if (mappings_.size() >= most) {
    const auto oldest = std::ranges::min_element(mappings_, {}, &Mapping::used);
    unmap_later_.push_back(*oldest);
    mappings_.erase(oldest);
  }
  mappings_.reserve(mappings_.size() + 1);
  Mapping mapping = map(card, device, is_copied ? theirs : device);
  mapping.process = process;
  mapping.number = card.number;
  mapping.used = uses_;
  mappings_.push_back(mapping);
  return mappings_.back().here + place.offset;
}

void Gpus::conclude(const gpu::DeviceCosts& costs) {
  costs_ = costs;
  state_ = MappingProof::proven;
}

void Gpus::refuse_to_map() {
  state_ = MappingProof::refused;
  for (const Mapping& each : mappings_) unmap_later_.push_back(each);
  mappings_.clear();
}

gpu::DeviceEvent& Gpus::open(int member, const gpu::IpcEventHandle& card, int number) {
  std::unique_ptr<gpu::DeviceEvent>& known = opened_[{processes_[static_cast<std::size_t>(member)], card.number}];
  if (known == nullptr) known = backend_->open(device_of(number), card);
  return *known;
}

void Gpus::let_go_of(int member) {
  for (const auto& [key, event] : opened_) {
    // Null: the event could not be opened.
    if (event != nullptr && key.first == processes_[static_cast<std::size_t>(member)]) event->let_go();
  }
}

void Gpus::keep_reason(std::string_view why) {
  const std::lock_guard lock(mutex_);
  reason_ = why;
  has_reason_.store(true, std::memory_order_release);
}

std::string Gpus::take_reason() {
  const std::lock_guard lock(mutex_);
  has_reason_.store(false, std::memory_order_release);
  return std::exchange(reason_, {});
}

}  // namespace lockstep::node
