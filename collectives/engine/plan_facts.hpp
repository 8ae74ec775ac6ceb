// SPDX-License-Identifier: Apache-2.0
// Caches the values that all calls of one plan share, so that a repeated call computes none of them.
//
// A Core owns it. An entry belongs to a plan object, not to a Spec: the planner returns the same object for equal
// calls.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "collectives/engine/call_history.hpp"
#include "collectives/engine/operation.hpp"

namespace lockstep {

// Holds the values that all calls of one plan share.
struct PlanFacts {
  std::shared_ptr<const Plan> plan;
  Signature signature;
  std::uint64_t kind = 0;
  std::size_t most_messages = 0;
  // Holds Agreement::times_forgotten() + 1 as of the members' agreement on this plan; 0 means that they have not
  // agreed.
  std::uint64_t agreed = 0;
  // Points to the operation that repeats this plan. It stays here if another plan takes this entry.
  Operation* reserved_operation = nullptr;
};

// Keeps one entry for each hash of a plan's address. A plan replaces another one with the same hash.
class PlanFactsTable {
 public:
  // Returns the plan's entry, filled in.
  PlanFacts& prepare(const std::shared_ptr<const Plan>& plan);
  // Returns the plan's entry, which may still hold another plan. Looks at the last repeated plan first.
  PlanFacts& find(const std::shared_ptr<const Plan>& plan) {
    return last_repeated_->plan == plan ? *last_repeated_ : entry_of(plan);
  }
  // Remembers the plan that was repeated last.
  void set_last_repeated(PlanFacts& entry) { last_repeated_ = &entry; }

 private:
  PlanFacts& entry_of(const std::shared_ptr<const Plan>& plan) {
    const auto address = reinterpret_cast<std::uintptr_t>(plan.get());
    return entries_[mix_hash(0, address) % entries_.size()];
  }

  std::array<PlanFacts, 64> entries_ = {};
  PlanFacts* last_repeated_ = entries_.data();
};

}  // namespace lockstep
