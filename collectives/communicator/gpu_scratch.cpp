// SPDX-License-Identifier: Apache-2.0
// Caches GPU memory for batches.
#include "collectives/communicator/gpu_scratch.hpp"

#include <algorithm>
#include <utility>

#include "collectives/gpu/memory.hpp"
#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"

namespace lockstep::detail {
namespace {

// Limits the unused memory, in bytes. It is the limit of pinned memory too.
constexpr std::size_t most_kept = 256U << 20U;

bool is_free(const StagingBuffer& memory) { return memory.use_count() == 1; }

// True if the stream has reached the mark, or has failed: then nothing runs there any more. Waiting for the stream
// reports the failure.
bool is_over(gpu::StreamMark& mark) {
  try {
    return mark.is_reached();
  } catch (const Error&) {
    return true;
  }
}

}  // namespace

// Returns the memory that fits best, at most twice as large as needed.
StagingBuffer GpuScratch::take(int device, std::size_t bytes) {
  constexpr std::size_t most_times = 2;
  is_in_use();
  const auto fits = [&](const CachedMemory& each) {
    return each.device == device && each.bytes >= bytes && each.bytes / most_times <= bytes && is_free(each.memory);
  };
  CachedMemory* best = nullptr;
  for (CachedMemory& each : kept_) {
    if (fits(each) && (best == nullptr || each.bytes < best->bytes)) best = &each;
  }
  if (best != nullptr) return best->memory;
  drop_unused();
  kept_.reserve(kept_.size() + 1);
  kept_.push_back({.device = device, .bytes = bytes, .memory = gpu::allocate(device, bytes, 1)});
  return kept_.back().memory;
}

// Frees the oldest unused memory beyond the limit.
void GpuScratch::drop_unused() {
  std::size_t all = 0;
  for (std::size_t i = kept_.size(); i-- > 0;) {
    if (!is_free(kept_[i].memory)) continue;
    all += kept_[i].bytes;
    if (all > most_kept) kept_[i].bytes = 0;
  }
  std::erase_if(kept_, [](const CachedMemory& each) { return each.bytes == 0; });
}

void GpuScratch::use_until(std::shared_ptr<gpu::StreamMark> mark, StagingBuffer memory) {
  uses_.push_back({std::move(mark), std::move(memory)});
}

bool GpuScratch::is_in_use() {
  std::erase_if(uses_, [](const StreamUse& each) { return is_over(*each.mark); });
  return !uses_.empty();
}

void GpuScratch::keep_what_is_in_use() {
  for (StreamUse& each : uses_) keep_forever(std::move(each.memory));
  uses_.clear();
}

}  // namespace lockstep::detail
