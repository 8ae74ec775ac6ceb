// SPDX-License-Identifier: Apache-2.0
// A thread that takes turns while there is something to do, so that calls go on while their caller computes. Knows
// nothing of engines.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

namespace lockstep {

enum class ProgressState { moved, waiting, nothing_to_do };

class ProgressThread {
 public:
  // `nap` sleeps at most so long, until there may be something to do; nothing: only wake() ends a nap.
  using Nap = std::function<void(std::chrono::nanoseconds)>;
  explicit ProgressThread(std::function<ProgressState()> turn, Nap nap = {});
  ~ProgressThread();
  ProgressThread(const ProgressThread&) = delete;
  ProgressThread& operator=(const ProgressThread&) = delete;

  // There is something to do.
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
