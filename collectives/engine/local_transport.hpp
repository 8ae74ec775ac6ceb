// SPDX-License-Identifier: Apache-2.0
// Provides a transport among threads of one process, for tests and for members that share a process. The receiver
// copies straight from the sender's memory as soon as both have posted. So a message is copied once, and waits for both
// sides.
#pragma once

#include <memory>

#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

// Returns this member's transport, which only its thread may use. All members of the exchange call this, and they must
// be threads of one process; otherwise it throws Error usage.
std::unique_ptr<Transport> local_transport(Exchange& exchange);

}  // namespace lockstep
