// SPDX-License-Identifier: Apache-2.0
// Runs the watching thread: a warning first, then an error and the end.
#include "topology/machine/hang_watchdog.hpp"

#include <unistd.h>

#include <system_error>

#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

HangWatchdog::HangWatchdog(std::string what, std::function<std::string()> hint, WaitLimits wait_limits, Log log,
                           std::function<void()> end)
    : what_(std::move(what)),
      here_(what_),
      launch_(launcher_job_of(process_environment)),
      hint_(std::move(hint)),
      wait_limits_(wait_limits),
      log_(std::move(log)),
      end_(std::move(end)) {
  if (!end_) end_ = [] { ::_exit(static_cast<int>(Exit::timeout)); };
  if (wait_limits_.warn == Duration{} && wait_limits_.limit == Duration{}) return;
  try {
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error&) {
    log_.warn(text("no thread can be started to watch over ", what_, " (ulimit -u, -v): a hang there would be silent"));
  }
}

HangWatchdog::~HangWatchdog() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

std::string HangWatchdog::advice() const {
  try {
    return hint_();
  } catch (const std::exception&) {
    return "check for members that are stopped or were not started";
  }
}

// Returns the ranks of this host that are not in the call, with a colon before them. Empty if nothing is known.
std::string HangWatchdog::missing() const {
  try {
    const bool all_come = what_.starts_with("MPI_Init") || what_ == "MPI_Finalize";
    const std::string all = missing_ranks_text(what_, launch_, local_ranks_of(launch_), all_come);
    return all.empty() ? all : text(": ", all);
  } catch (const std::exception&) {
    return {};
  }
}

void HangWatchdog::run() {
  std::unique_lock lock(mutex_);
  const auto begin = std::chrono::steady_clock::now();
  const auto done_within = [&](Duration time) {
    return changed_.wait_until(lock, begin + time, [&] { return done_; });
  };
  const auto look = [&] {  // the call may come back meanwhile
    lock.unlock();
    std::string all = missing();
    lock.lock();
    return all;
  };
  const bool warn_first = wait_limits_.limit == Duration{} || wait_limits_.warn < wait_limits_.limit;
  if (wait_limits_.warn > Duration{} && warn_first) {
    if (done_within(wait_limits_.warn)) return;
    const std::string who = look();
    if (done_) return;
    log_.warn(text(id(Code::mpi_hang), " ", what_, " has not come back for ", format_duration(wait_limits_.warn), who));
  }
  if (wait_limits_.limit == Duration{} || done_within(wait_limits_.limit)) return;
  const std::string who = look();
  if (done_) return;
  const Error error(Code::mpi_hang, text(what_, " has not come back for ", format_duration(wait_limits_.limit), who),
                    text(advice(), "; LOCKSTEP_TIMEOUT sets the limit"));
  log_.error(error.what());
  end_();
}

}  // namespace lockstep
