// SPDX-License-Identifier: Apache-2.0
// Implements the slots of operations.
#include "collectives/engine/operation_table.hpp"

#include <utility>

#include "topology/base/keep.hpp"

namespace lockstep {

void OperationTable::add_slot() {
  free_slots_.push_back(static_cast<std::uint32_t>(slots_.size()));
  slots_.push_back(std::make_unique<Operation>());
  slots_.back()->slot = free_slots_.back();
  active_.reserve(slots_.size());
}

void OperationTable::keep_memory() {
  active_.clear();
  free_slots_.clear();
  for (auto& slot : std::exchange(slots_, {})) keep_forever(std::shared_ptr<Operation>(std::move(slot)));
}

void OperationTable::fail_active() {
  for (Operation* operation : active_) {
    if (operation->state == OperationState::in_flight) operation->state = OperationState::failed;
  }
}

std::uint64_t OperationTable::oldest_collective() const {
  const auto oldest = std::ranges::find_if_not(active_, &Operation::is_message);
  return oldest == active_.end() ? 0 : (*oldest)->number;
}

}  // namespace lockstep
