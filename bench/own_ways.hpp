// SPDX-License-Identifier: Apache-2.0
// Ours in other ways, to be measured in turns with ours as it comes: what the reproducible order costs, what symmetric
// memory, the node's memory and the wire format gain, and what it costs to be seen from outside.
#pragma once

#include <string_view>

#include "bench/bench.hpp"

namespace lockstep::bench {

// All members call it; for a name that is_own_way() (scores.hpp). Nothing is made of what has no such way: an order
// where nothing is reduced, symmetric memory where nothing is moved.
CandidateMaker own_way(Communicator& world, std::string_view name);

}  // namespace lockstep::bench
