// SPDX-License-Identifier: Apache-2.0
// A transport among threads of one process: the receiver copies straight from the sender's memory as soon as both
// have posted, so a message is copied once and waits for both. For tests, and for members that share a process.
#pragma once

#include <memory>

#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

// Called by all members of the exchange, which must be threads of one process; each transport is for one thread.
std::unique_ptr<Transport> local_transport(Exchange& exchange);

}  // namespace lockstep
