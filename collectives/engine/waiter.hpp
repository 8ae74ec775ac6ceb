// SPDX-License-Identifier: Apache-2.0
// Decides how a member waits. It spins while it has a core to itself, then lets other threads run, then sleeps ever
// longer. It learns by itself if it has a core: yielding takes long if other threads run. The numbers are starting
// guesses, to be measured and tuned. None of them affects correctness.
#pragma once

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "collectives/engine/transport.hpp"
#include "collectives/node/node_collective.hpp"
#include "topology/base/progress_hooks.hpp"

namespace lockstep {

// Waits for one engine. It is a small value, and holds no resources.
class Waiter {
 public:
  // Chooses the limits for that many members on each core. More than 1 means that members share cores.
  explicit Waiter(double members_per_core) {
    if (members_per_core <= 1) {
      // Other programs may want this core, such as the ranks of another virtual node. So yielding comes soon. The limit
      // is a time and no count, because a look at the transport may take 20 ns or 2 us.
      spin_ns_ = 20'000;
      yield_ns_ = 200'000;
      undisturbed_yield_ns_ = longest_undisturbed_yield();
      poll_limits_ = default_limits;
    } else if (members_per_core > 4) {
      max_yields_ = 8;  // a turn of yielding takes as long as the others' time slices, so sleeping is better
    }
    if (spin_ns_ == 0) poll_limits_ = {0, max_yields_};
  }

  // Returns how often to look at a neighbour's line before doing anything else. With a core each, a transfer between
  // cores takes several looks. Otherwise the neighbour needs this core to come that far. The value changes as the
  // member learns about its core.
  const node::PollLimits& poll_limits() const { return poll_limits_; }

  // Waits a little after `turns` turns in a row in which nothing moved. News at `sleeper` ends a sleep.
  template <class Sleeper>
  void idle(unsigned turns, Sleeper& sleeper) {
    if (turns == 0) {
      since_ = now_ns();
      yield_count_ = 0;
      nap_count_ = 0;
    }
    const std::int64_t now = nap_count_ > 0 ? since_ : now_ns();
    const std::int64_t waited = now - since_;
    if (nap_count_ == 0 && waited < spin_ns_ && disturbances_ == 0) {
      pause();
    } else if (nap_count_ == 0 && (yield_count_ < max_yields_ || waited < yield_ns_)) {
      ++yield_count_;
      sched_yield();
      if (spin_ns_ > 0) note_yield(now_ns() - now);
    } else {
      if (nap_count_ >= naps_alone) run_outside_progress();
      sleeper.sleep(nap(nap_count_++));
    }
  }

 private:
  // Bound the length of a nap, in nanoseconds; both are guesses.
  static constexpr std::int64_t first_nap = 20'000;
  static constexpr std::int64_t longest_nap = 1'000'000;
  // Is the number of naps, 2.5 ms in all, after which the other members may be waiting for a message of MPI. A guess.
  static constexpr unsigned naps_alone = 12;

  // Returns the length of a nap in nanoseconds: each length occurs twice, then it doubles.
  static std::int64_t nap(unsigned naps) { return std::min(longest_nap, first_nap << std::min(naps / 2, 6U)); }

  static std::int64_t now_ns() {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  // Learns from the time of a yield if other threads ran on this core. After that, it expects them for a while.
  void note_yield(std::int64_t yielded_ns) {
    constexpr unsigned seen = 8;
    constexpr unsigned most = 64;
    if (yielded_ns > undisturbed_yield_ns_)
      disturbances_ = std::min(disturbances_ + seen, most);
    else if (disturbances_ > 0)
      --disturbances_;
    poll_limits_ = disturbances_ > 0 ? node::PollLimits{0, 0} : default_limits;
  }

  // Returns the longest time of a yield if no other thread wants the core: a few system calls. The fastest of 16
  // measured calls was not disturbed.
  static std::int64_t longest_undisturbed_yield() {
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

  static constexpr node::PollLimits default_limits{200, 0};

  node::PollLimits poll_limits_;
  std::int64_t spin_ns_ = 0;
  std::int64_t yield_ns_ = 0;
  std::int64_t undisturbed_yield_ns_ = 0;
  // Is above 0 if other threads were seen lately.
  unsigned disturbances_ = 0;
  unsigned max_yields_ = 64;
  std::int64_t since_ = 0;
  unsigned yield_count_ = 0;
  unsigned nap_count_ = 0;
};

}  // namespace lockstep
