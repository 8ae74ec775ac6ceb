// SPDX-License-Identifier: Apache-2.0
// Finds out which members really share memory. MPI's shared-memory split names the members on one host. But containers
// on one host may not reach each other's memory, so every member tries.
#pragma once

#include <string>
#include <vector>

#include "topology/exchange.hpp"

namespace lockstep {

// Holds the same answer on all members.
struct SharedNodes {
  std::vector<int> representative;   // by rank: the lowest rank that it shares memory with
  std::vector<std::string> remarks;  // sentences that people should know
};

// `colour` is equal for members that might share memory. All members call it, and it takes two all-gathers.
SharedNodes find_shared_nodes(Exchange& exchange, int colour);

}  // namespace lockstep
