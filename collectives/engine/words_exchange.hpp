// SPDX-License-Identifier: Apache-2.0
// An exchange over the words of a transport: for members that have nothing else any more to meet by.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "collectives/engine/transport.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

// Asked while it waits: why it need not, in words.
using InVain = std::function<std::optional<std::string>()>;

// Of the members of the transport, which is its own and must be of a kind that can regroup. A member that is gone is
// named at once by all that wait.
std::unique_ptr<Exchange> words_exchange(std::unique_ptr<Transport> transport, Patience patience, const Log& log,
                                         InVain in_vain = {});

}  // namespace lockstep
