// SPDX-License-Identifier: Apache-2.0
// How a member waits: it spins while it has a core to itself, then lets others run, then sleeps ever longer. Whether it
// has one it learns by itself: letting others run takes long where there are any. The numbers are starting guesses, to
// be measured and tuned; none of them is needed for being right.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "collectives/engine/transport.hpp"
#include "collectives/node/node_collective.hpp"

namespace lockstep {

class Waiter {
 public:
  explicit Waiter(double members_per_core) {
    if (members_per_core <= 1) {
      // Nobody tells whether other programs want this core, such as the ranks of another virtual node: so yielding
      // comes soon, and by the clock, for a look at the transport may take 20 ns or 2 us.
      spin_ns_ = 20'000;
      yield_ns_ = 200'000;
      alone_ns_ = longest_alone();
      looks_ = alone;
    } else if (members_per_core > 4) {
      yields_ = 8;  // a turn of yielding is as long as the others' time slices: better asleep
    }
    if (spin_ns_ == 0) looks_ = {0, yields_};
  }

  // At a neighbour's line before anything else is done. With a core each: a transfer between cores takes some of them.
  // Otherwise the neighbour needs this core to come that far. It changes with what is found.
  const node::PollLimits& looks() const { return looks_; }

  // `turns` so many times in a row nothing has moved. What the member sleeps at wakes it.
  template <class Sleeper>
  void idle(unsigned turns, Sleeper& sleeper) {
    if (turns == 0) {
      since_ = now_ns();
      yielded_ = 0;
      naps_ = 0;
    }
    const std::int64_t now = naps_ > 0 ? since_ : now_ns();
    const std::int64_t waited = now - since_;
    if (naps_ == 0 && waited < spin_ns_ && others_ == 0) {
      pause();
    } else if (naps_ == 0 && (yielded_ < yields_ || waited < yield_ns_)) {
      ++yielded_;
      sched_yield();
      if (spin_ns_ > 0) learn(now_ns() - now);
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

  // Others have run meanwhile, or not. Who has seen some expects them for a while.
  void learn(std::int64_t yielded_ns) {
    constexpr unsigned seen = 8;
    constexpr unsigned most = 64;
    if (yielded_ns > alone_ns_)
      others_ = std::min(others_ + seen, most);
    else if (others_ > 0)
      --others_;
    looks_ = others_ > 0 ? node::PollLimits{0, 0} : alone;
  }

  // What a yield takes at most where there is nobody else: a few calls of the system's, of which the quickest of some
  // is not disturbed.
  static std::int64_t longest_alone() {
    constexpr int times = 16;
    std::int64_t least = 1'000'000;
    for (int i = 0; i < times; ++i) {
      const std::int64_t begin = now_ns();
      ::syscall(SYS_getppid);
      least = std::min(least, now_ns() - begin);
    }
    return 4 * least + 1000;
  }

  static void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
  }

  static constexpr node::PollLimits alone{200, 0};

  node::PollLimits looks_;
  std::int64_t spin_ns_ = 0;
  std::int64_t yield_ns_ = 0;
  std::int64_t alone_ns_ = 0;
  unsigned others_ = 0;  // above 0: some have been seen lately
  unsigned yields_ = 64;
  std::int64_t since_ = 0;
  unsigned yielded_ = 0;
  unsigned naps_ = 0;
};

}  // namespace lockstep
