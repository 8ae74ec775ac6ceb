// SPDX-License-Identifier: Apache-2.0
// An exchange among threads of one process: for tests and for strategies that live in one process.
#pragma once

#include <functional>

#include "topology/exchange.hpp"

namespace lockstep {

// One exchange per member; each is to be used by one thread.
std::vector<std::unique_ptr<Exchange>> make_local_exchanges(int size, Patience patience = {}, const Log& log = Log());

// Runs `body` on `size` threads, each with its exchange, and waits for all. When a body throws, the
// others are told (fail) and the first exception by time is thrown on.
void run_local(int size, const std::function<void(Exchange&)>& body, Patience patience = {}, const Log& log = Log());

}  // namespace lockstep
