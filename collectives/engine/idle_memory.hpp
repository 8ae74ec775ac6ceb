// SPDX-License-Identifier: Apache-2.0
// Returns the memory of slots and pages to the system when a communicator has not used them for a while and another one
// has. A program may then keep many communicators that exchange large data now and then.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>

namespace lockstep {

// Registers a function that returns an engine's memory, for as long as this object lives. Any thread may call it, while
// no object is registered or destroyed. It returns false if it could not yet return the memory, and never blocks.
class IdleMemory {
 public:
  explicit IdleMemory(std::function<bool()> give_back);
  ~IdleMemory();
  IdleMemory(const IdleMemory&) = delete;
  IdleMemory& operator=(const IdleMemory&) = delete;

  // Notes that the engine uses its memory; the engine's thread calls it. Now and then it returns the memory of engines
  // that have been idle for longer than `longest`. A use that is not large takes little memory, so only the first and
  // one of many are noted in the list. An engine may thus seem idle between them.
  void note_use(bool is_large) {
    if ((is_large && last_used().load(std::memory_order_relaxed) != this) ||
        !is_held_.load(std::memory_order_relaxed) || ++uses_ % uses_between_looks == 0)
      note_in_list();
  }

  // Is long beside the time to get the pages again (0.1 ms for 256 KiB), which it thus bounds to a fraction of a
  // percent.
  static constexpr std::chrono::milliseconds longest{50};

 private:
  using Clock = std::chrono::steady_clock;

  static std::atomic<IdleMemory*>& last_used();
  void note_in_list();

  static constexpr std::uint32_t uses_between_looks = 64;  // a guess

  std::function<bool()> give_back_;
  std::uint32_t uses_ = 0;
  Clock::time_point used_at_{};
  std::atomic<bool> is_held_ = false;  // it has used memory that was not returned
};

}  // namespace lockstep
