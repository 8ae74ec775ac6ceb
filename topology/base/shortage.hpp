// SPDX-License-Identifier: Apache-2.0
// Of a buffer that is not there the kernel says EFAULT, and also of one for whose pages it has no memory just now, as
// in a control group at its limit.
#pragma once

#include <sys/types.h>

#include <cerrno>
#include <chrono>
#include <optional>
#include <thread>

namespace lockstep {

// What `move` says, which moves bytes and says how many: again and again while the kernel finds no page, but no longer
// than that, and only if `is_there` says that the process may use the memory.
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
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  errno = EFAULT;
  return -1;
}

}  // namespace lockstep
