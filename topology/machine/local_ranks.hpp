// SPDX-License-Identifier: Apache-2.0
// Finds the other processes that the same launcher started on this host, and their state. If a call of MPI does not
// come back, MPI does not say which process it waits for, but the system can.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/base/environment.hpp"

namespace lockstep {

// Describes one other rank on this host.
struct LocalRank {
  int rank = 0;  // in the launcher's count
  int process = 0;
  bool stopped = false;     // true if a signal or a debugger has stopped it
  std::string inside = {};  // the watched call that it is in; empty: none
};

// Holds the launcher's words to this process.
struct LauncherJob {
  std::string name;  // equal in all processes of the job, and in no others; empty: no launcher tells
  int rank = 0;
  int here = 0;  // number of ranks on this host; 0: unknown
};
// Reads the launcher's variables, and /proc if they name no job.
LauncherJob launcher_job_of(const Environment& environment);

// Returns the other ranks of this job on this host, by rank. They are processes of this user. Empty if the job has no
// name.
std::vector<LocalRank> local_ranks_of(const LauncherJob& launch);

// Tells the other ranks on this host, as long as it lives, that this process is in a call. The sign is the name of a
// memory file.
class CallMarker {
 public:
  explicit CallMarker(std::string_view call);
  ~CallMarker();
  CallMarker(const CallMarker&) = delete;
  CallMarker& operator=(const CallMarker&) = delete;

 private:
  int file_;
};

// Returns "of the ranks on this host, 2 (process 7) is stopped, 3 (process 8) has not reached it". Empty if nothing can
// be said. If not `all_come`, the call is one that some ranks need not make, and only stopped ranks are named.
std::string missing_ranks_text(std::string_view call, const LauncherJob& launch,
                               const std::vector<LocalRank>& local_ranks, bool all_come);

}  // namespace lockstep
