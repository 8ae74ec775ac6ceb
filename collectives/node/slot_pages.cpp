// SPDX-License-Identifier: Apache-2.0
// Looks for members that may still read, and returns the pages.
#include "collectives/node/slot_pages.hpp"

#include <sys/mman.h>

#include "collectives/gpu/device_backend.hpp"

namespace lockstep::node {

bool SlotPages::give_back(StepNumber last) noexcept {
  if (gpu::backend() != nullptr) return true;
  for (int member = 0; member < memory_.size(); ++member) {
    if (!reaches(memory_.header_of(member).finished.load(std::memory_order_acquire), last)) return false;
  }
  give_back_pages();
  return true;
}

// Leaves pages out in which the slots of a neighbour begin or end.
void SlotPages::give_back_pages() const noexcept {
  constexpr std::size_t system_page = 4096;
  const auto first = static_cast<std::size_t>(memory_.slot(memory_.index(), 0, 0) - memory_.owner().get());
  const std::size_t begin = round_up(first, system_page);
  const std::size_t end = (first + slot_ring * Layout(memory_.size()).stride) / system_page * system_page;
  std::byte* const pages = memory_.owner().get() + begin;
  if (end > begin) ::madvise(pages, end - begin, MADV_REMOVE);  // a refusal only keeps the memory
}

}  // namespace lockstep::node
