// SPDX-License-Identifier: Apache-2.0
// Computes the values that all calls of one plan share.
#include "collectives/engine/plan_facts.hpp"

#include <algorithm>

namespace lockstep {
namespace {

// Returns the most messages that a round of the plan sends, or receives.
std::size_t most_messages(const Plan& plan) {
  std::size_t most = 0;
  for (const Schedule* schedule : {&plan.schedule, &plan.last}) {
    for (const Round& round : schedule->rounds) most = std::max({most, round.sends.size(), round.receives.size()});
  }
  return most;
}

}  // namespace

PlanFacts& PlanFactsTable::prepare(const std::shared_ptr<const Plan>& plan) {
  PlanFacts& entry = entry_of(plan);
  if (entry.plan != plan) {
    entry.agreed = 0;
    entry.plan = plan;
    entry.signature = signature_of(plan->stands_for ? *plan->stands_for : plan->spec);
    entry.kind = mix_hash(hash(entry.signature), plan->choice_number());
    entry.most_messages = most_messages(*plan);
  }
  return entry;
}

}  // namespace lockstep
