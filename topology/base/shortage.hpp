// SPDX-License-Identifier: Apache-2.0
// Tells a bad buffer from a shortage of memory. The kernel answers both with EFAULT: a buffer that does not exist,
// and one for whose pages it has no memory just now. The latter happens in a control group at its limit.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

#include "topology/base/cancellation_deferral.hpp"

namespace lockstep {

// Returns the result of `move`, which moves bytes and returns their number, or -1 with errno. Calls it again every
// millisecond while it fails with EFAULT, for at most `longest`. Gives up at once if `is_there` says that the
// process may not use the memory.
template <class Move, class IsThere>
ssize_t moved_in_shortage(std::chrono::milliseconds longest, const Move& move, const IsThere& is_there) {
  using Clock = std::chrono::steady_clock;
  std::optional<Clock::time_point> end;
  for (;;) {
    const ssize_t bytes = move();
    if (bytes >= 0 || errno != EFAULT) return bytes;
    if (!end && !is_there()) break;
    if (!end) end = Clock::now() + longest;
    if (Clock::now() > *end) break;
    const CancellationDeferral cancellation;  // also in a call that only looked at memory so far
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  errno = EFAULT;
  return -1;
}

}  // namespace lockstep
