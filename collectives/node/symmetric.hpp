// SPDX-License-Identifier: Apache-2.0
// Allocates symmetric memory: all ranks of a communicator take it together, and ranks of one node reach each other's
// parts without copies. Each owner frees its part alone, in any order. The other ranks' mappings go when all have freed
// theirs.
#pragma once

#include <functional>
#include <memory>

#include "collectives/node/room.hpp"
#include "collectives/node/symmetric_part.hpp"
#include "topology/exchange.hpp"

namespace lockstep::node {

// Allocates this rank's part, which begins as zeros. All ranks of the exchange must call it, each with its own size in
// bytes. Throws Error out_of_memory on all ranks if one of them gets no memory, or cannot map the parts of the others.
// Calls `add` with the mapped parts of all ranks if a room is given and spans several processes. Without such a room
// the part is ordinary memory.
SymmetricPart allocate(Exchange& exchange, Room* room, std::size_t bytes,
                       const std::function<void(SymmetricMemory)>& add);

}  // namespace lockstep::node
