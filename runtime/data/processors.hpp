// SPDX-License-Identifier: Apache-2.0
// Tells threads that prepare data which processors the replicas of this process leave to them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace lockstep::data {

// Keeps the processors of a strategy's replicas for them while it lives. Threads that prepare data then run on other
// ones. If there are none, they run on all, with a lower priority.
class ReplicaProcessors {
 public:
  // Holds the processors of each replica's thread, by the system's numbers. An empty list means any.
  explicit ReplicaProcessors(std::vector<std::vector<int>> threads);
  ~ReplicaProcessors();
  ReplicaProcessors(const ReplicaProcessors&) = delete;
  ReplicaProcessors& operator=(const ReplicaProcessors&) = delete;
  const std::vector<std::vector<int>>& threads() const { return threads_; }

 private:
  std::vector<std::vector<int>> threads_;
};

// Returns the number of threads that may prepare data at once: one for each processor that is left if each replica of
// this process uses one. A quota of the control group limits it.
std::size_t free_processors();

// Keeps a thread that prepares data where it may run. One belongs to each such thread.
class HelperPlacement {
 public:
  // Moves the calling thread if a strategy has begun or ended since the last call. If the system refuses, the thread
  // stays where it is.
  void update();

 private:
  std::uint64_t seen_ = 0;  // Counts the changes that this thread has followed.
};

}  // namespace lockstep::data
