// SPDX-License-Identifier: Apache-2.0
// Maps, remembers and unmaps allocations.
#include "collectives/node/gpu_mappings.hpp"

#include <algorithm>

#include "topology/base/error.hpp"

namespace lockstep::node {

GpuMappings::~GpuMappings() {
  for (const Mapping& each : mappings_) unmap(each);
  for (const Mapping& each : unmap_later_) unmap(each);
}

void GpuMappings::unmap_freed(bool is_in_stream) {
  constexpr std::size_t max_delayed = 64;
  if (unmap_later_.empty() || (is_in_stream && unmap_later_.size() < max_delayed)) return;
  if (events_ != nullptr && events_->is_working()) return;
  for (const Mapping& each : unmap_later_) unmap(each);
  unmap_later_.clear();
}

// Drops mappings of memory that its owner has freed, so that the memory does not stay in use.
void GpuMappings::forget(std::uint64_t process, const gpu::IpcMemoryHandle& handle) {
  std::erase_if(mappings_, [&](const Mapping& each) {
    const bool is_gone = each.process == process && std::ranges::count(handle.gone, each.number) > 0;
    if (is_gone) unmap_later_.push_back(each);
    return is_gone;
  });
}

// Maps the allocation on that GPU, or on the owner's.
GpuMappings::Mapping GpuMappings::map(const gpu::IpcMemoryHandle& handle, int device, int theirs) {
  try {
    return {.device = device, .here = backend_.map(device, handle)};
  } catch (const Error&) {
    if (device == theirs) throw;
    return {.device = theirs, .here = backend_.map(theirs, handle)};
  }
}

std::byte* GpuMappings::find(std::uint64_t process, const gpu::IpcMemoryHandle& handle, int device, int theirs,
                             bool may_map_there) {
  ++uses_;
  const auto is_it = [&](const Mapping& each) {
    return each.process == process && each.number == handle.number &&
           (each.device == device || (may_map_there && each.device == theirs));
  };
  if (const auto known = std::ranges::find_if(mappings_, is_it); known != mappings_.end()) {
    known->used = uses_;
    return known->here;
  }
  forget(process, handle);
  if (mappings_.size() >= max_mappings_) {
    const auto oldest = std::ranges::min_element(mappings_, {}, &Mapping::used);
    unmap_later_.push_back(*oldest);
    mappings_.erase(oldest);
  }
  mappings_.reserve(mappings_.size() + 1);
  Mapping mapping = map(handle, device, may_map_there ? theirs : device);
  mapping.process = process;
  mapping.number = handle.number;
  mapping.used = uses_;
  mappings_.push_back(mapping);
  return mapping.here;
}

void GpuMappings::drop_all() {
  for (const Mapping& each : mappings_) unmap_later_.push_back(each);
  mappings_.clear();
}

}  // namespace lockstep::node
