// SPDX-License-Identifier: Apache-2.0
// Other processes that the same launcher has started on this host, and what becomes of them, as the system tells: where
// a call of MPI does not come back, MPI does not say for whom it waits.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/base/environment.hpp"

namespace lockstep {

struct LocalRank {
  int rank = 0;  // by the launcher's account
  int process = 0;
  bool stopped = false;
  std::string inside = {};  // of the calls that are watched over; empty: none
};

// What the launcher has told this process.
struct LauncherJob {
  std::string name;  // that all its processes have alike, and no others; empty: no launcher says
  int rank = 0;
  int here = 0;  // so many on this host; 0: it does not say
};
LauncherJob launcher_job_of(const Environment& environment);

// By rank.
std::vector<LocalRank> local_ranks_of(const LauncherJob& launch);

// Says to the other local ranks, as long as it lives, that this process is in a call.
class CallMarker {
 public:
  explicit CallMarker(std::string_view call);
  ~CallMarker();
  CallMarker(const CallMarker&) = delete;
  CallMarker& operator=(const CallMarker&) = delete;

 private:
  int file_;
};

// "of the ranks on this host, 2 (process 7) is stopped, 3 (process 8) has not come to it"; empty: nothing can be said.
// Of a call that not all need make only those that are stopped.
std::string who_is_missing(std::string_view call, const LauncherJob& launch, const std::vector<LocalRank>& local_ranks,
                           bool all_come);

}  // namespace lockstep
