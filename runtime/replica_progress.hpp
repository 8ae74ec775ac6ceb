// SPDX-License-Identifier: Apache-2.0
// Finds replicas of a process that make different numbers of collectives in a job.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "collectives/origin.hpp"

namespace lockstep::detail {

// Counts the collectives of each local replica. Any replica's thread may call it.
class ReplicaProgress {
 public:
  // Takes the number of replicas, and the number of the first one among those of all processes.
  ReplicaProgress(int replicas, int first);

  // Starts a job: no replica has begun a collective, or left.
  void begin();
  // Count a replica's next collective, and note that it has done its last one. Throw Error mismatch, which names both
  // places, if one replica begins a collective that another has left out.
  void count(int local, Origin origin);
  void leave(int local);

 private:
  // Keeps the place of the last collective, and whether the job is over.
  struct Count {
    std::atomic<std::uint64_t> begun{0};
    std::atomic<const char*> file{""};
    std::atomic<int> line{0};
    std::atomic<bool> left{false};
  };
  [[noreturn]] void refuse_difference(int local, int other) const;

  int replicas_;
  int first_;
  std::unique_ptr<Count[]> counts_;  // Is indexed by local replica.
};

}  // namespace lockstep::detail
