// SPDX-License-Identifier: Apache-2.0
// Keeps registered blocks by number, and frees them when the GPU is done with them.
#include "collectives/nccl/registered_memory.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "topology/base/error.hpp"

namespace lockstep::nccl {

// Returns memory with a deleter that drops the block and keeps this object alive.
std::shared_ptr<std::byte> RegisteredMemory::add(std::byte* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  all_.push_back({++last_, memory, bytes, nullptr});
  return {memory, [self = shared_from_this(), number = last_](std::byte*) { self->drop(number); }};
}

void RegisteredMemory::know(std::unique_ptr<Registration> registration) {
  const std::lock_guard lock(mutex_);
  all_.back().registration = std::move(registration);
}

// Marks the block as dropped. All members forget it together later; after close() it is freed at once.
void RegisteredMemory::drop(std::uint64_t number) {
  RegisteredBlock last{};
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(all_, number, &RegisteredBlock::number);
    found->is_dropped = true;
    found->before = mark();
    if (!is_closed_) return;
    last = std::move(*found);
    all_.erase(found);
  }
  free_when_idle(last);
}

// Marks the work that the default stream has now, which may still use the block.
std::shared_ptr<gpu::StreamMark> RegisteredMemory::mark() const noexcept {
  try {
    return gpu::backend()->mark(device_, nullptr);
  } catch (const Error&) {
    return nullptr;  // the GPU has failed, or the driver has ended
  }
}

// True if the GPU has done the work that may use the block.
bool RegisteredMemory::is_idle(const RegisteredBlock& memory) noexcept {
  try {
    return memory.before == nullptr || memory.before->is_reached();
  } catch (const Error&) {
    return true;  // a GPU that has failed does nothing more
  }
}

void RegisteredMemory::free_idle() {
  std::erase_if(leaving_, [&](const RegisteredBlock& each) {
    const bool is_done = is_idle(each);
    if (is_done) library_.free(each.first);
    return is_done;
  });
}

// Waits as cudaFree does for other memory, but for this block's work only.
void RegisteredMemory::free_when_idle(const RegisteredBlock& memory) noexcept {
  while (!is_idle(memory)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  library_.free(memory.first);
}

RegisteredMemory::RegisteredAddress RegisteredMemory::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const RegisteredBlock& each : all_) {
    const auto first = reinterpret_cast<std::uintptr_t>(each.first);
    if (at >= first && at < first + each.bytes) return {each.number, at - first};
  }
  return {};
}

// Returns the blocks that this member has dropped. Members compare these lists, and forget the common ones.
std::vector<std::uint64_t> RegisteredMemory::dropped() {
  const std::lock_guard lock(mutex_);
  free_idle();
  std::vector<std::uint64_t> numbers;
  for (const RegisteredBlock& each : all_) {
    if (each.is_dropped) numbers.push_back(each.number);
  }
  return numbers;
}

std::vector<std::uint64_t> RegisteredMemory::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> numbers;
  for (const RegisteredBlock& each : all_) numbers.push_back(each.number);
  return numbers;
}

std::unique_ptr<Registration> RegisteredMemory::take(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(all_, number, &RegisteredBlock::number);
  return found == all_.end() ? nullptr : std::move(found->registration);
}

void RegisteredMemory::free(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(all_, number, &RegisteredBlock::number);
  leaving_.push_back(std::move(*found));
  all_.erase(found);
  free_idle();
}

// Ends the registrations, and frees the dropped blocks. The others are freed when their owners drop them.
void RegisteredMemory::close() {
  std::vector<RegisteredBlock> last;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    last = std::exchange(leaving_, {});
    std::erase_if(all_, [&](RegisteredBlock& each) {
      const bool leaves = each.is_dropped;
      each.registration.reset();
      if (leaves) last.push_back(std::move(each));
      return leaves;
    });
  }
  for (const RegisteredBlock& each : last) free_when_idle(each);
}

}  // namespace lockstep::nccl
