// SPDX-License-Identifier: Apache-2.0
#include "collectives/gpu/layer.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <utility>

namespace lockstep::gpu {
namespace {

struct Found {
  std::string why_none;
  std::unique_ptr<Layer> layer = make_layer(why_none);
};

// Never destroyed: memory of a device may be freed when the process ends.
Found& found() {
  static auto& all = *new Found;
  return all;
}

std::atomic<Layer*>& current() {
  static std::atomic<Layer*> layer = found().layer.get();
  return layer;
}

}  // namespace

std::shared_ptr<std::byte> Layer::pinned(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  constexpr std::size_t least = 4096;
  const std::size_t size = std::bit_ceil(std::max(bytes, least));
  std::byte* memory = nullptr;
  {
    const std::lock_guard lock(mutex_);
    if (const auto kept = kept_.find(size); kept != kept_.end()) {
      memory = kept->second;
      kept_.erase(kept);
      kept_bytes_ -= size;
    }
  }
  if (memory == nullptr) memory = allocate_pinned(size);
  return {memory, [this, size](std::byte* used) { keep(used, size); }};
}

// Pinning is slow, and pinned memory is taken from all others on the machine.
void Layer::keep(std::byte* memory, std::size_t bytes) noexcept {
  constexpr std::size_t most = 256U << 20U;
  try {
    const std::lock_guard lock(mutex_);
    if (kept_bytes_ + bytes <= most) {
      kept_.emplace(bytes, memory);
      kept_bytes_ += bytes;
      return;
    }
  } catch (const std::bad_alloc&) {
    kept_bytes_ += 0;  // it is freed instead
  }
  free_pinned(memory);
}

void Layer::free_kept() noexcept {
  const std::lock_guard lock(mutex_);
  for (const auto& [bytes, memory] : kept_) free_pinned(memory);
  kept_.clear();
  kept_bytes_ = 0;
}

Layer* layer() { return current().load(std::memory_order_acquire); }

std::string why_none() { return layer() != nullptr ? "" : found().why_none; }

Instead::Instead(std::unique_ptr<Layer> layer) : layer_(std::move(layer)), before_(current().exchange(layer_.get())) {}

Instead::~Instead() {
  current().store(before_);
  layer_->free_kept();
}

}  // namespace lockstep::gpu
