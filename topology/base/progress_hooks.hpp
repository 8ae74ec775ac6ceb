// SPDX-License-Identifier: Apache-2.0
// What a thread has begun and left to go on by itself moves whenever the same thread waits, for whatever: a call on
// one communicator must not stand still because its member waits in another one first.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace lockstep {

// Something that can be moved, as long as it lives. Its function must not block, and does nothing where it cannot
// enter; it is called by the thread that last said busy, inside run_progress_hooks only.
class ProgressHook {
 public:
  explicit ProgressHook(std::function<void()> move);
  ~ProgressHook();
  ProgressHook(const ProgressHook&) = delete;
  ProgressHook& operator=(const ProgressHook&) = delete;

  // By the thread that has begun something, and when nothing is left.
  void busy() {
    if (!is_mine()) begin();
  }
  void idle() {
    if (is_mine()) end();
  }

 private:
  friend void run_progress_hooks(int but);

  void begin();
  void end();

  bool is_mine() const {
    return busy_.load(std::memory_order_acquire) &&
           thread_.load(std::memory_order_relaxed) == std::this_thread::get_id();
  }

  std::function<void()> move_;
  std::atomic<bool> busy_{false};
  std::atomic<std::thread::id> thread_{};
};

// For loops that wait, now and then. Costs next to nothing where this thread has no more than `but` busy hooks: 1 for
// who is one itself.
void run_progress_hooks(int but);
bool has_busy_hooks();

}  // namespace lockstep
