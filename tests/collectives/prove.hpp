// SPDX-License-Identifier: Apache-2.0
// Proves schedules. It executes those of all members together, with symbols instead of data, and with sends that end
// only when they are received. The result is a fault, or the cost.
#pragma once

#include <span>
#include <string>

#include "collectives/shape.hpp"

namespace lockstep {

// Is the result of a proof.
struct Proof {
  std::string fault;  // for people; empty: every contribution is exactly once in every place where it must be
  Cost cost = {};
  bool in_order = false;  // every result combines its contributions in the order of the members
  bool balanced = false;  // every result is exactly the balanced tree
  bool good() const { return fault.empty(); }
};

// Executes one schedule for each member, by index, and checks the results. Never throws for a wrong schedule; the proof
// then has a fault, which names the member and the round.
Proof prove(const Problem& problem, std::span<const Schedule> schedules);

}  // namespace lockstep
