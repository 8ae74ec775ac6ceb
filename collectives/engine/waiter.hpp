// SPDX-License-Identifier: Apache-2.0
// How a member waits: it spins while it has a core to itself, then lets others run, then sleeps ever longer. The
// numbers are starting guesses, to be measured and tuned; none of them is needed for being right.
#pragma once

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "collectives/engine/transport.hpp"
#include "collectives/node/work.hpp"

namespace lockstep {

class Waiter {
 public:
  explicit Waiter(double members_per_core) {
    if (members_per_core <= 1) {
      // Nobody tells whether other programs want this core, such as the ranks of another virtual node: so yielding
      // comes soon, and by the clock, for a look at the transport may take 20 ns or 2 us.
      spin_ns_ = 20'000;
      yield_ns_ = 200'000;
    } else if (members_per_core > 4) {
      yields_ = 8;  // a turn of yielding is as long as the others' time slices: better asleep
    }
  }

  // At a neighbour's line before anything else is done. With a core each: a transfer between cores takes some of them.
  // Otherwise the neighbour needs this core to come that far.
  node::Looks looks() const { return spin_ns_ > 0 ? node::Looks{200, 0} : node::Looks{0, yields_}; }

  // `turns` so many times in a row nothing has moved. What the member sleeps at wakes it.
  template <class Sleeper>
  void idle(unsigned turns, Sleeper& sleeper) {
    if (turns == 0) {
      since_ = now_ns();
      yielded_ = 0;
      naps_ = 0;
    }
    const std::int64_t waited = naps_ > 0 ? 0 : now_ns() - since_;
    if (naps_ == 0 && waited < spin_ns_) {
      pause();
    } else if (naps_ == 0 && (yielded_ < yields_ || waited < yield_ns_)) {
      ++yielded_;
      sched_yield();
    } else {
      sleeper.sleep(nap(naps_++));
    }
  }

 private:
  static constexpr std::int64_t first_nap = 20'000;  // nanoseconds
  static constexpr std::int64_t longest_nap = 1'000'000;

  // Each length twice, then twice as long.
  static std::int64_t nap(unsigned naps) { return std::min(longest_nap, first_nap << std::min(naps / 2, 6U)); }

  static std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  std::int64_t spin_ns_ = 0;
  std::int64_t yield_ns_ = 0;
  unsigned yields_ = 64;
  std::int64_t since_ = 0;
  unsigned yielded_ = 0;
  unsigned naps_ = 0;
};

}  // namespace lockstep
