// SPDX-License-Identifier: Apache-2.0
// Lets the replicas of a process meet in the middle of a job: all or none, at the same place of the program. One
// replica then runs a function on the values that all have brought.
//
// A strategy owns one for the replicas of its process. Each replica's thread calls it.
#pragma once

#include <chrono>
#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "collectives/origin.hpp"
#include "topology/base/error.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

// Serves one process. Any thread may call it.
class ReplicaBarrier {
 public:
  using Completion = std::function<void(const std::vector<void*>& brought)>;

  ReplicaBarrier(int size, WaitLimits wait_limits, Log log)
      : size_(size), wait_limits_(wait_limits), log_(std::move(log)), contributions_(static_cast<std::size_t>(size)) {}

  // Starts a job: no replica has arrived or left yet.
  void begin();
  // Waits for all replicas. Replica 0 then calls `completion`, and the others wait until it has returned. Throws Error
  // mismatch on all if one comes with another kind, or has left its job, or comes from another line, if lines are
  // compared. Throws stall if one does not come, and peer_failed after cancel(). If `completion` throws, replica 0
  // rethrows that, and the others throw peer_failed.
  void arrive_and_wait(int replica, Origin origin, const void* kind, void* mine, const Completion& completion,
                       bool compares_lines = true);
  // Tells that the replica has finished its job and will not arrive again.
  void leave(int replica);
  // Tells that a replica has failed, so that the others stop waiting.
  void cancel(const std::string& why);

 private:
  using Lock = std::unique_lock<std::mutex>;
  using Clock = std::chrono::steady_clock;

  void arrive(int replica, Origin origin, const void* kind, void* mine, bool compares_lines);
  void call(Lock& lock, const Completion& completion);
  void fail(Code code, const std::string& what, std::string_view remedy);
  void check() const;
  std::string missing() const;
  void wait(Lock& lock, const std::function<bool()>& ready);
  void check_deadline(Clock::time_point begin, bool& warned);

  const int size_;
  const WaitLimits wait_limits_;
  const Log log_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<void*> contributions_;  // Null for a replica that has not arrived.
  int arrived_ = 0;
  int rounds_ = 0;  // Counts the rounds that are over.
  bool leading_ = false;
  int first_to_leave_ = -1;
  Origin origin_;
  const void* kind_ = nullptr;
  std::exception_ptr failure_;
};

}  // namespace lockstep
