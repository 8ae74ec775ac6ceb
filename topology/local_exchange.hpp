// SPDX-License-Identifier: Apache-2.0
// An exchange among threads of one process, for tests and for strategies within one process.
//
// Each thread has an exchange of its own; all of them share one rendezvous.
#pragma once

#include <functional>

#include "topology/exchange.hpp"

namespace lockstep {

// Returns one exchange per member, by rank. Each is to be used by one thread. Throws Error usage if `size` is below
// 1.
std::vector<std::unique_ptr<Exchange>> make_local_exchanges(int size, WaitLimits wait_limits = {},
                                                            const Log& log = Log());

// Runs `body` on `size` threads, each with its exchange, and waits for all. If a body throws, the others' exchanges
// fail, and the first exception by time is thrown on.
void run_local(int size, const std::function<void(Exchange&)>& body, WaitLimits wait_limits = {},
               const Log& log = Log());

}  // namespace lockstep
