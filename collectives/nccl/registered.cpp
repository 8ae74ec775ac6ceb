// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl/registered.hpp"

#include <algorithm>
#include <utility>

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
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(all_, number, &Memory::number);
  found->is_dropped = true;
  if (!is_closed_) return;
  library_.free(found->first);
  all_.erase(found);
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

std::vector<std::uint64_t> Registered::dropped() const {
  const std::lock_guard lock(mutex_);
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
  library_.free(found->first);
  all_.erase(found);
}

void Registered::close() {
  const std::lock_guard lock(mutex_);
  is_closed_ = true;
  std::erase_if(all_, [&](Memory& each) {
    each.registration.reset();
    if (each.is_dropped) library_.free(each.first);
    return each.is_dropped;
  });
}

}  // namespace lockstep::nccl
