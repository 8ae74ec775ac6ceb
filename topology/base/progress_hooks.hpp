// SPDX-License-Identifier: Apache-2.0
// Lets a waiting thread drive everything else that it has under way. Otherwise a call on one communicator would
// stand still while its member waits in another, and so would a message of MPI.
#pragma once

#include <atomic>
#include <functional>
#include <thread>

namespace lockstep {

// Registers a function that makes progress, for as long as this object lives. The function must not block, and does
// nothing if it cannot enter. Only the thread that last called busy() calls it, from run_progress_hooks().
class ProgressHook {
 public:
  explicit ProgressHook(std::function<void()> move);
  ~ProgressHook();
  ProgressHook(const ProgressHook&) = delete;
  ProgressHook& operator=(const ProgressHook&) = delete;

  // busy() is called by the thread that has begun something, idle() by the same thread when nothing is left.
  // idle() of another thread does nothing.
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

// Calls the busy hooks of this thread. Loops that wait call it now and then. It costs next to nothing if this thread
// has no more than `but` busy hooks: 1 for a caller that has one itself, else 0.
void run_progress_hooks(int but);
// True if this thread has busy hooks.
bool has_busy_hooks();

// Registers a function that lets MPI make progress, for as long as this object lives. The function must not block, and
// returns at once on a thread that may not call MPI.
class OutsideProgress {
 public:
  explicit OutsideProgress(std::function<void()> move);
  // Waits until no thread is in the function.
  ~OutsideProgress();
  OutsideProgress(const OutsideProgress&) = delete;
  OutsideProgress& operator=(const OutsideProgress&) = delete;

 private:
  friend void run_outside_progress();

  std::function<void()> move_;
  int process_;  // a forked child must not touch MPI
};

// Calls one such function if there is one. A member that waits long does so, since another may need a message of MPI
// before it comes.
void run_outside_progress();
// Stops these functions for ever: MPI ends, or a member has died. Waits until no thread is in one.
void stop_outside_progress();

// Stops these functions while this object lives, because other threads must not meet its owner's calls of MPI, or
// because a member may have died. Waits until no thread is in one.
class OutsidePause {
 public:
  OutsidePause();
  ~OutsidePause();
  OutsidePause(const OutsidePause&) = delete;
  OutsidePause& operator=(const OutsidePause&) = delete;
};

}  // namespace lockstep
