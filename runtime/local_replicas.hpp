// SPDX-License-Identifier: Apache-2.0
// Holds the replicas of this process: their contexts, their threads, and the place where they meet.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <string_view>
#include <vector>

#include "runtime/replica_barrier.hpp"
#include "runtime/replica_context.hpp"
#include "runtime/replica_devices.hpp"
#include "runtime/replica_progress.hpp"
#include "runtime/replica_seats.hpp"
#include "runtime/replica_threads.hpp"
#include "runtime/strategy_config.hpp"

namespace lockstep::detail {

// Belongs to one strategy. The default strategy has one replica without a thread: the calling thread.
class LocalReplicas {
 public:
  explicit LocalReplicas(Strategy& strategy, const StrategyConfig& config) : strategy_(strategy), config_(config) {}

  // Makes the replicas' contexts. `first` is the number of the first one among all.
  void add(int replicas, int first);
  // Starts a thread for each seat, on the processors of its device.
  void start_threads(const ReplicaDevices& devices);

  int count() const { return static_cast<int>(contexts_.size()); }
  // Throws std::out_of_range for a wrong number.
  ReplicaContext& context(int local) { return contexts_.at(static_cast<std::size_t>(local)); }
  const std::deque<ReplicaContext>& contexts() const { return contexts_; }
  const ReplicaSeats& seats() const { return seats_; }
  bool have_threads() const { return threads_ != nullptr; }
  ReplicaThreads& threads() { return *threads_; }
  bool are_running() const { return running_; }

  // Is held during a run, or a call for all. Calls made inside merge_call belong to the run.
  class RunGuard;

  // Runs a job in all replicas, as ReplicaThreads::run() does, each in its context.
  std::vector<ReplicaThreads::SeatFailure> run(const ReplicaThreads::SeatFunction& job,
                                               const ReplicaThreads::FailureHandler& failure_handler);
  // Counts a replica's next collective. Throws Error mismatch if another replica has ended the job without it.
  void count_collective(int local, Origin origin) { progress_->count(local, origin); }
  // Waits for all replicas, as ReplicaBarrier does. `completion` runs in cross-replica context.
  void arrive_and_wait(int local, Origin origin, const void* kind, void* mine,
                       const ReplicaBarrier::Completion& completion, bool compares_lines);
  // Ends the wait of replicas that have arrived.
  void cancel(const std::string& why) { barrier_->cancel(why); }

 private:
  Strategy& strategy_;
  const StrategyConfig& config_;
  std::deque<ReplicaContext> contexts_;
  ReplicaSeats seats_;
  std::unique_ptr<ReplicaProgress> progress_;
  std::unique_ptr<ReplicaBarrier> barrier_;
  std::unique_ptr<ReplicaThreads> threads_;
  std::atomic<bool> running_{false};
};

// Lets one caller speak for all replicas: runs neither nest nor overlap. Throws Error usage if one is under way. `call`
// names the call in the message.
class LocalReplicas::RunGuard {
 public:
  RunGuard(LocalReplicas& replicas, std::string_view call);
  ~RunGuard() { running_ = false; }
  RunGuard(const RunGuard&) = delete;
  RunGuard& operator=(const RunGuard&) = delete;

 private:
  std::atomic<bool>& running_;
};

}  // namespace lockstep::detail
