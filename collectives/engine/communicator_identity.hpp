// SPDX-License-Identifier: Apache-2.0
// Identifies a communicator, and this process's place in it, for errors and for other programs.
#pragma once

#include <cstdint>
#include <string>

#include "topology/members.hpp"

namespace lockstep {

// Does not change while the communicator lives.
struct CommunicatorIdentity {
  std::string name;
  int rank = 0;
  int size = 1;
  // Is the same on all members, and no other communicator has it.
  std::uint64_t id = 0;
  // Names the members in errors.
  Members members = {};
};

}  // namespace lockstep
