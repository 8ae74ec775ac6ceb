// SPDX-License-Identifier: Apache-2.0
// Guards the few MPI calls that may block. A thread names the hang and ends the process, because nothing else helps
// against a call that does not come back.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "topology/exchange.hpp"
#include "topology/machine/local_ranks.hpp"

namespace lockstep {

// Watches a call from its construction to its destruction.
class HangWatchdog {
 public:
  // The first argument names the call. `hint` tells people where to look; it is asked for only at the limit. `end` is
  // called at the limit, and must not return control to the hanging call. By default it ends the process with exit code
  // 4. Zero in `wait_limits` is never.
  HangWatchdog(std::string what, std::function<std::string()> hint, WaitLimits wait_limits, Log log,
               std::function<void()> end = {});
  ~HangWatchdog();
  HangWatchdog(const HangWatchdog&) = delete;
  HangWatchdog& operator=(const HangWatchdog&) = delete;

 private:
  void run();
  std::string advice() const;
  std::string missing() const;

  std::string what_;
  CallMarker here_;
  LauncherJob launch_;
  std::function<std::string()> hint_;
  WaitLimits wait_limits_;
  Log log_;
  std::function<void()> end_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace lockstep
