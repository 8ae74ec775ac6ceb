// SPDX-License-Identifier: Apache-2.0
// An exchange by the control messages of a transport, for members that have no other exchange any more.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

// Asked while it waits: why it need not, in words.
using FutilityCheck = std::function<std::optional<std::string>()>;

// Of the members of the transport, which is its own and must be of a kind that can regroup. A member that is gone is
// named at once by all that wait.
std::unique_ptr<Exchange> transport_exchange(std::unique_ptr<Transport> transport, Patience patience, const Log& log,
                                             FutilityCheck in_vain = {});

}  // namespace lockstep
