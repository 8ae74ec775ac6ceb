// SPDX-License-Identifier: Apache-2.0
// Watches the counter of calls from a thread, and ends the process after the limit.
#include "bench/mpi/call_watchdog.hpp"

#include <unistd.h>

#include <algorithm>

#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep::bench {

MpiCallWatchdog::MpiCallWatchdog(WaitLimits wait_limits, Log log) : wait_limits_(wait_limits), log_(std::move(log)) {
  if (wait_limits_.limit > Duration{}) thread_ = std::thread([this] { run(); });
}

MpiCallWatchdog::~MpiCallWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void MpiCallWatchdog::run() {
  std::unique_lock lock(mutex_);
  unsigned last = 0;
  auto since = std::chrono::steady_clock::now();
  const Duration look = std::min<Duration>(wait_limits_.limit / 4, std::chrono::milliseconds(500));
  while (!changed_.wait_for(lock, look, [this] { return done_; })) {
    const unsigned now = count_.load(std::memory_order_relaxed);
    if (now != last || now % 2 == 0) {
      last = now;
      since = std::chrono::steady_clock::now();
      continue;
    }
    if (std::chrono::steady_clock::now() - since < wait_limits_.limit) continue;
    const Error error(
        Code::mpi_hang,
        text("a collective of the MPI library, measured as a baseline, has not come back for ",
             format_duration(wait_limits_.limit)),
        "check for ranks that are stopped or have exited (the library does not say which); LOCKSTEP_TIMEOUT sets "
        "the limit, --baseline none measures without it");
    log_.error(error.what());
    ::_exit(static_cast<int>(Exit::timeout));
  }
}

}  // namespace lockstep::bench
