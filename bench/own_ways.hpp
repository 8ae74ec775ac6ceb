// SPDX-License-Identifier: Apache-2.0
// Makes candidates of Lockstep's own variants, to be measured in turns with the default. They show the cost of the
// reproducible order and of being observed, and the gain by symmetric memory, the node's memory and the wire format.
#pragma once

#include <string_view>

#include "bench/bench.hpp"

namespace lockstep::bench {

// Returns a maker for a name that is_own_way() (scores.hpp). The maker returns nothing if the subject has no such
// variant: an order without a reduction, or symmetric memory without data. All members call it.
CandidateMaker own_way(Communicator& world, std::string_view name);

}  // namespace lockstep::bench
