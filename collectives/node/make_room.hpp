// SPDX-License-Identifier: Apache-2.0
// Brings the members of a node together in shared memory.
#pragma once

#include <memory>

#include "collectives/node/room.hpp"
#include "topology/exchange.hpp"

namespace lockstep::node {

// Returns a room for all members of the exchange, which are on one node; all of them call it. Returns null on all
// members if one cannot share memory with the others, and the first member logs the reason. The thresholds of the room
// are read from a file or measured meanwhile. `crowded`: members share cores. Throws if the exchange or the measurement
// fails.
std::unique_ptr<Room> make_room(Exchange& exchange, bool crowded);

}  // namespace lockstep::node
