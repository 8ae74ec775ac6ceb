// SPDX-License-Identifier: Apache-2.0
// How a member waits: it spins while it has a core to itself, then lets others run, then sleeps ever longer. The
// numbers are starting guesses, to be measured and tuned; none of them is needed for being right.
#pragma once

#include <sched.h>

#include <algorithm>
#include <cstdint>

#include "collectives/engine/transport.hpp"

namespace lockstep {

class Waiter {
 public:
  explicit Waiter(double members_per_core) {
    if (members_per_core <= 1) {
      spins_ = 2000;  // some tens of microseconds, what waking up a sleeper costs
      yields_ = 200;
    } else if (members_per_core > 4) {
      yields_ = 8;  // a turn of yielding is as long as the others' time slices: better asleep
    }
  }

  // `turns` so many times in a row nothing has moved.
  void idle(unsigned turns, Transport& transport) const {
    if (turns < spins_) {
      pause();
    } else if (turns < spins_ + yields_) {
      sched_yield();
    } else {
      transport.sleep(nap(turns - spins_ - yields_));
    }
  }

 private:
  static constexpr std::int64_t first_nap = 20'000;  // nanoseconds
  static constexpr std::int64_t longest_nap = 1'000'000;

  // Each length twice, then twice as long.
  static std::int64_t nap(unsigned naps) { return std::min(longest_nap, first_nap << std::min(naps / 2, 6U)); }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  unsigned spins_ = 0;
  unsigned yields_ = 64;
};

}  // namespace lockstep
