// SPDX-License-Identifier: Apache-2.0
// Looks for members that may still read, and returns their memory.
#include "collectives/node/slot_pages.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include "collectives/gpu/device_backend.hpp"

namespace lockstep::node {

bool SlotPages::give_back(StepNumber last) noexcept {
  if (gpu::backend() != nullptr) return true;
  for (int member = 0; member < memory_.size(); ++member) {
    if (!reaches(memory_.header_of(member).finished.load(std::memory_order_acquire), last)) return false;
  }
  give_back_range(memory_.page(memory_.index(), 0), line_ring * page_bytes);
  give_back_range(memory_.slot(memory_.index(), 0, 0), slot_ring * Layout(memory_.size()).stride);
  return true;
}

// Leaves system pages out in which the data of a neighbour begin or end.
void SlotPages::give_back_range(const std::byte* first, std::size_t bytes) const noexcept {
  const auto system_page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  const auto offset = static_cast<std::size_t>(first - memory_.owner().get());
  const std::size_t begin = round_up(offset, system_page);
  const std::size_t end = (offset + bytes) / system_page * system_page;
  if (end > begin) ::madvise(memory_.owner().get() + begin, end - begin, MADV_REMOVE);  // a refusal only keeps them
}

}  // namespace lockstep::node
