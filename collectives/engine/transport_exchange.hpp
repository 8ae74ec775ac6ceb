// SPDX-License-Identifier: Apache-2.0
// Provides an exchange over the control messages of a transport. The surviving members of a communicator use it, since
// they have no other exchange left.
//
// A communicator that shrink() made owns it. It uses a transport of its own, so set-up and calls do not mix.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

// Returns the reason, in words, why further waiting is futile; nothing if it is not. The exchange calls it while it
// waits.
using FutilityCheck = std::function<std::optional<std::string>()>;

// Returns an exchange among the transport's members, and takes over the transport, which must be able to regroup. If a
// member is gone, every waiting member names it at once. `futility_check` may be empty.
std::unique_ptr<Exchange> transport_exchange(std::unique_ptr<Transport> transport, WaitLimits wait_limits,
                                             const Log& log, FutilityCheck futility_check = {});

}  // namespace lockstep
