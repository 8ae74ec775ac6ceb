// SPDX-License-Identifier: Apache-2.0
// Provides a thread that takes turns while there is work, so that calls advance while their caller computes. It knows
// nothing of engines.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep {

// Gives the result of a turn: something moved, something is awaited, or there is no work.
enum class ProgressState { moved, waiting, nothing_to_do };

// Runs `turn` in a thread of its own from construction to destruction. The destructor waits for the thread to end.
class ProgressThread {
 public:
  // Sleeps at most that long, until there may be work. If it is empty, only wake() ends a nap.
  using Nap = std::function<void(std::chrono::nanoseconds)>;
  // Starts the thread. `turn` must not throw.
  explicit ProgressThread(std::function<ProgressState()> turn, Nap nap = {});
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // Reports new work. Any thread may call this.
  void wake();

 private:
  void run();
  bool pause(std::chrono::microseconds longest);

  std::function<ProgressState()> turn_;
  Nap nap_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool woken_ = false;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace lockstep
