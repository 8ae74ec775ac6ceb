// SPDX-License-Identifier: Apache-2.0
// Runs jobs in the replicas of a process.
#include "runtime/local_replicas.hpp"

#include <utility>

#include "runtime/variable_scope.hpp"

namespace lockstep::detail {

LocalReplicas::RunGuard::RunGuard(LocalReplicas& replicas, std::string_view call) : running_(replicas.running_) {
  if (running_.exchange(true))
    throw Error(
        Code::usage,
        text(call, " of ", replicas.config_.describe(), " while it runs: inside merge_call, or in another thread"),
        "let one run() end before the next");
}

void LocalReplicas::add(int replicas, int first) {
  for (int local = 0; local < replicas; ++local)
    contexts_.emplace_back(strategy_, local, first + local, config_.size());
  seats_ = ReplicaSeats(replicas, first);
  progress_ = std::make_unique<ReplicaProgress>(replicas, first);
}

void LocalReplicas::start_threads(const ReplicaDevices& devices) {
  barrier_ = std::make_unique<ReplicaBarrier>(count(), config_.options().wait_limits, config_.options().log);
  std::vector<std::vector<int>> cpus;
  for (const ReplicaPlacement& each : devices.placements()) cpus.push_back(each.cpus);
  threads_ = std::make_unique<ReplicaThreads>(seats_.count(), std::move(cpus));
}

std::vector<ReplicaThreads::SeatFailure> LocalReplicas::run(const ReplicaThreads::SeatFunction& job,
                                                            const ReplicaThreads::FailureHandler& failure_handler) {
  barrier_->begin();
  progress_->begin();
  const VariableScope outer = variable_scope();
  const auto whole = [&](int seat) {
    const int local = seats_.replica_of(seat);
    const ScopedContext inside(strategy_, &context(local));
    const ScopedVariableScope scopes(outer);
    job(local);
    barrier_->leave(local);
    progress_->leave(local);
  };
  return threads_->run(whole, failure_handler);
}

void LocalReplicas::arrive_and_wait(int local, Origin origin, const void* kind, void* mine,
                                    const ReplicaBarrier::Completion& completion, bool compares_lines) {
  const auto merged = [&](const std::vector<void*>& brought) {
    const ScopedContext inside(strategy_, nullptr);
    completion(brought);
  };
  if (count() == 1)
    merged({mine});
  else
    barrier_->arrive_and_wait(local, origin, kind, mine, merged, compares_lines);
}

}  // namespace lockstep::detail
