// SPDX-License-Identifier: Apache-2.0
// Enforces a deadline on calls of the MPI library's own collectives, which have none. A thread sees a call that does
// not return, reports it and ends this process. A call costs two increments.
#pragma once

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "topology/base/log.hpp"
#include "topology/exchange.hpp"

namespace lockstep::bench {

// Watches the calls of MPI. Construction starts the watching thread if there is a limit; destruction ends it.
class MpiCallWatchdog {
 public:
  MpiCallWatchdog(WaitLimits wait_limits, Log log);
  ~MpiCallWatchdog();
  MpiCallWatchdog(const MpiCallWatchdog&) = delete;
  MpiCallWatchdog& operator=(const MpiCallWatchdog&) = delete;

  // Is called before and after every call.
  void beat() { count_.fetch_add(1, std::memory_order_relaxed); }

 private:
  void run();

  WaitLimits wait_limits_;
  Log log_;
  std::atomic<unsigned> count_ = 0;  // odd: inside a call
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  std::thread thread_;
};

}  // namespace lockstep::bench
