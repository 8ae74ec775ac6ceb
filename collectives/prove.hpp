// SPDX-License-Identifier: Apache-2.0
// Proves schedules: executes those of all members together, with symbols instead of data and a send that ends
// only when it is received, and says what is wrong with them or what they cost.
#pragma once

#include <span>
#include <string>

#include "collectives/shape.hpp"

namespace lockstep {

struct Proof {
  std::string fault;  // empty: every contribution is exactly once wherever it must be
  Cost cost = {};
  bool in_order = false;  // every result combines its contributions in the order of the members
  bool balanced = false;  // every result is exactly the balanced tree
  bool good() const { return fault.empty(); }
};

// One schedule per member.
Proof prove(const Problem& problem, std::span<const Schedule> schedules);

}  // namespace lockstep
