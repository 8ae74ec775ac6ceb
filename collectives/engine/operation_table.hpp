// SPDX-License-Identifier: Apache-2.0
// Owns the operations of one member: their slots, their tickets, and the list of those under way.
//
// A Core owns it, and calls it inside the engine's guard, so by one thread at a time. An operation lives in its slot
// until its ticket is finished or dropped.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

#include "collectives/engine/operation.hpp"

namespace lockstep {

// Identifies a call under way to the caller that started it. The caller waits for it, tests it until it is finished, or
// drops it, exactly once.
struct CallTicket {
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  Collective collective = Collective::barrier;
  Origin origin = {};
};

// Reuses slots with all their memory, so a repeated call allocates nothing.
class OperationTable {
 public:
  // Takes a free slot, or makes one. The table owns the operation; release() frees its slot.
  Operation& acquire() {
    if (free_slots_.empty()) add_slot();
    Operation& operation = *slots_[free_slots_.back()];
    free_slots_.pop_back();
    return operation;
  }
  // Spends the operation's ticket and frees its slot. A slot that repeats one plan stays with that plan.
  void release(Operation& operation) {
    operation.state = OperationState::unused;
    ++operation.generation;
    if (operation.is_reserved) return;  // the plan may be repeated
    operation.call.plan.reset();
    operation.call.pieces.reset();
    free_slots_.push_back(operation.slot);
  }
  // Keeps the memory of all operations until the process exits. Afterwards the table is empty.
  void keep_memory();

  static CallTicket ticket_of(const Operation& operation) {
    return {operation.slot, operation.generation, operation.signature.collective, operation.call.origin};
  }
  // Returns the ticket's operation; null if the ticket was spent.
  Operation* find(const CallTicket& ticket) const {
    if (ticket.slot >= slots_.size()) return nullptr;
    Operation* const operation = slots_[ticket.slot].get();
    const bool is_current = operation->generation == ticket.generation && operation->state != OperationState::unused;
    return is_current ? operation : nullptr;
  }

  // Adds an operation to those under way. Does not allocate.
  void activate(Operation& operation) { active_.push_back(&operation); }
  // Removes those from the list that are not under way any more.
  void sweep() {
    std::erase_if(active_, [](const Operation* each) { return each->state != OperationState::in_flight; });
  }
  // Marks all operations under way as failed.
  void fail_active();

  // Returns the operations under way in the order of their calls. Some may be over, until sweep().
  const std::vector<Operation*>& active() const { return active_; }
  // Returns true if no operation is under way.
  bool is_idle() const { return active_.empty(); }
  // Returns true if an operation under way may wait for a member in the node's memory.
  bool may_wait_in_node() const {
    return std::ranges::any_of(active_, [](const Operation* each) {
      return each->plan().in_node || each->part_in_room != nullptr || each->waits_in_flow();
    });
  }
  // Returns the number of the oldest collective call in the list; 0 if there is none.
  std::uint64_t oldest_collective() const;
  // Returns the number up to which all collective calls are finished, if `last` is the highest finished one. Calls may
  // end in another order than they began.
  std::uint64_t finished_up_to(std::uint64_t last) const {
    for (const Operation* each : active_) {
      if (each->state == OperationState::in_flight && !each->is_message()) last = std::min(last, each->number - 1);
    }
    return last;
  }

 private:
  void add_slot();

  std::vector<std::unique_ptr<Operation>> slots_;
  // Lists the free slots as a stack: the slot released last is used first.
  std::vector<std::uint32_t> free_slots_;
  std::vector<Operation*> active_;
};

}  // namespace lockstep
