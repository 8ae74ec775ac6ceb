// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/registered.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <utility>

#include "topology/base/error.hpp"

namespace lockstep::nccl {

std::shared_ptr<std::byte> Registered::add(std::byte* memory, std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  all_.push_back({++last_, memory, bytes, nullptr});
  return {memory, [self = shared_from_this(), number = last_](std::byte*) { self->drop(number); }};
}

void Registered::know(std::unique_ptr<Registration> registration) {
  const std::lock_guard lock(mutex_);
  all_.back().registration = std::move(registration);
}

void Registered::drop(std::uint64_t number) {
  Memory last{};
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(all_, number, &Memory::number);
    found->is_dropped = true;
    found->before = mark();
    if (!is_closed_) return;
    last = std::move(*found);
    all_.erase(found);
  }
  free_when_idle(last);
}

std::shared_ptr<gpu::Mark> Registered::mark() const noexcept {
  try {
    return gpu::layer()->mark(device_, nullptr);
  } catch (const Error&) {
    return nullptr;  // the GPU has failed, or the driver has ended
  }
}

bool Registered::is_idle(const Memory& memory) noexcept {
  try {
    return memory.before == nullptr || memory.before->is_reached();
  } catch (const Error&) {
    return true;  // nothing is done any more on a GPU that has failed
  }
}

void Registered::free_idle() {
  std::erase_if(leaving_, [&](const Memory& each) {
    const bool is_done = is_idle(each);
    if (is_done) library_.free(each.first);
    return is_done;
  });
}

// As the owner of any other memory waits for cudaFree.
void Registered::free_when_idle(const Memory& memory) noexcept {
  while (!is_idle(memory)) std::this_thread::sleep_for(std::chrono::microseconds(20));
  library_.free(memory.first);
}

Registered::Place Registered::find(const void* address) const {
  const std::lock_guard lock(mutex_);
  const auto at = reinterpret_cast<std::uintptr_t>(address);
  for (const Memory& each : all_) {
    const auto first = reinterpret_cast<std::uintptr_t>(each.first);
    if (at >= first && at < first + each.bytes) return {each.number, at - first};
  }
  return {};
}

std::vector<std::uint64_t> Registered::dropped() {
  const std::lock_guard lock(mutex_);
  free_idle();
  std::vector<std::uint64_t> numbers;
  for (const Memory& each : all_) {
    if (each.is_dropped) numbers.push_back(each.number);
  }
  return numbers;
}

std::vector<std::uint64_t> Registered::all() const {
  const std::lock_guard lock(mutex_);
  std::vector<std::uint64_t> numbers;
  for (const Memory& each : all_) numbers.push_back(each.number);
  return numbers;
}

std::unique_ptr<Registration> Registered::take(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(all_, number, &Memory::number);
  return found == all_.end() ? nullptr : std::move(found->registration);
}

void Registered::free(std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(all_, number, &Memory::number);
  leaving_.push_back(std::move(*found));
  all_.erase(found);
  free_idle();
}

void Registered::close() {
  std::vector<Memory> last;
  {
    const std::lock_guard lock(mutex_);
    is_closed_ = true;
    last = std::exchange(leaving_, {});
    std::erase_if(all_, [&](Memory& each) {
      const bool leaves = each.is_dropped;
      each.registration.reset();
      if (leaves) last.push_back(std::move(each));
      return leaves;
    });
  }
  for (const Memory& each : last) free_when_idle(each);
}

}  // namespace lockstep::nccl
