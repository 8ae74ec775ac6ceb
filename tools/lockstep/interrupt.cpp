// SPDX-License-Identifier: Apache-2.0
// Sets the flag of measure() from a signal handler.
#include "tools/lockstep/interrupt.hpp"

#include <csignal>

#include "bench/measure.hpp"

namespace lockstep::command {

void end_early_on_signals() {
  const auto want = [](int /*signal*/) { bench::interrupt_wanted = true; };
  std::signal(SIGINT, want);
  std::signal(SIGTERM, want);
}

}  // namespace lockstep::command
