// SPDX-License-Identifier: Apache-2.0
#include "collectives/node/gpus.hpp"

#include <algorithm>

#include "topology/base/error.hpp"

namespace lockstep::node {

std::vector<std::string> Gpus::serials() {
  std::vector<std::string> all;
  gpu::Layer* const layer = gpu::layer();
  if (layer == nullptr) return all;
  try {
    for (int device = 0; device < layer->devices(); ++device) all.push_back(layer->id(device));
  } catch (const Error&) {
    all.clear();  // a GPU that does not say who it is is nothing to share
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
  all->layer_ = gpu::layer();
  all->processes_ = std::move(processes);
  return all;
}

Gpus::~Gpus() {
  for (const Mapping& each : mappings_) unmap(each);
}

void Gpus::unmap(const Mapping& mapping) noexcept { layer_->unmap(mapping.device, mapping.here); }

int Gpus::number_of(int device) const {
  const auto found = std::ranges::find(devices_, device);
  return found == devices_.end() ? unknown : static_cast<int>(found - devices_.begin());
}

Place Gpus::show(const void* data, int device, gpu::Shown& card) const {
  Place place;
  place.device = number_of(device);
  if (place.device == unknown || !can_map()) return place;
  const auto found = layer_->show(data);
  if (!found) return place;
  card = *found;
  place.memory = Place::mapped;
  place.offset = reinterpret_cast<std::uintptr_t>(data) - card.base;
  return place;
}

std::byte* Gpus::reach(int member, const Place& place, const gpu::Shown& card) {
  const std::uint64_t process = processes_[static_cast<std::size_t>(member)];
  // NOLINTNEXTLINE(performance-no-int-to-ptr): an address of this process, told as a number
  if (process == processes_[me_]) return reinterpret_cast<std::byte*>(card.base + place.offset);
  ++uses_;
  const auto same_place = [&](const Mapping& each) { return each.process == process && each.base == card.base; };
  if (const auto known = std::ranges::find_if(mappings_, same_place); known != mappings_.end()) {
    if (known->number == card.number) {
      known->used = uses_;
      return known->here + place.offset;
    }
    unmap(*known);  // its owner has freed it, and has something else there now
    mappings_.erase(known);
  }
  // More than one call needs; what is mapped stays taken when its owner frees it.
  const std::size_t most = 4 * processes_.size();
  if (mappings_.size() >= most) {
    const auto oldest = std::ranges::min_element(mappings_, {}, &Mapping::used);
    unmap(*oldest);
    mappings_.erase(oldest);
  }
  mappings_.reserve(most);
  const int device = device_of(static_cast<int>(place.device));
  mappings_.push_back({process, card.number, card.base, device, layer_->map(device, card), uses_});
  return mappings_.back().here + place.offset;
}

}  // namespace lockstep::node
