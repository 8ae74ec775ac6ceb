// SPDX-License-Identifier: Apache-2.0
// The members of a node find each other's memory.
#pragma once

#include <memory>

#include "collectives/node/room.hpp"
#include "topology/exchange.hpp"

namespace lockstep::node {

// A room for all members of the exchange, which are on one node; all of them call it. Nothing, on all of them, where
// one cannot share memory with the others: one of them says so once. `crowded`:
// they share cores.
std::unique_ptr<Room> make_room(Exchange& exchange, bool crowded);

}  // namespace lockstep::node
