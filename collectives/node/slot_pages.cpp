// SPDX-License-Identifier: Apache-2.0
// Looks for members that may still read, and returns the pages.
#include "collectives/node/slot_pages.hpp"

#include "collectives/gpu/device_backend.hpp"

namespace lockstep::node {

bool SlotPages::give_back(StepNumber last) noexcept {
  if (gpu::backend() != nullptr) return true;
  for (int member = 0; member < memory_.size(); ++member) {
    if (!reaches(memory_.header_of(member).finished.load(std::memory_order_acquire), last)) return false;
  }
  memory_.give_back_slots();
  return true;
}

}  // namespace lockstep::node
