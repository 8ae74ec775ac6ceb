// SPDX-License-Identifier: Apache-2.0
// Which members really share memory. MPI's shared-memory split says who is on one host; containers on
// one host may still not see each other's /dev/shm, so every member tries.
#pragma once

#include <string>
#include <vector>

#include "topology/exchange.hpp"

namespace lockstep {

struct SharedNodes {
  std::vector<int> representative;   // by rank: the lowest rank that it shares memory with
  std::vector<std::string> remarks;  // what people should know
};

// `colour` is equal for members that might share memory. All members call it. Who cannot have a file in the directory
// (it is full, or read-only) is known by memory without a name, unless told otherwise.
SharedNodes find_shared_nodes(Exchange& exchange, int colour, const std::string& directory = "/dev/shm",
                              bool nameless = true);

}  // namespace lockstep
