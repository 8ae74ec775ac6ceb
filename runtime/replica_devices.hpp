// SPDX-License-Identifier: Apache-2.0
// Tells on which devices the replicas of a process run, and finds replicas by the names of devices.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/devices.hpp"
#include "runtime/replica_levels.hpp"

namespace lockstep::detail {

// Serves one process of a strategy. Each seat of its replicas is on one device.
class ReplicaDevices {
 public:
  // Sets where replicas run. An empty list gives no placement to the `replicas` replicas.
  void place(std::vector<ReplicaPlacement> placements, int replicas);
  // Sets the job and task under which this process names its devices, and the number of tasks.
  void set_home(std::string job, int task, int tasks);

  // Returns the placement of each seat; none if seats have no placement.
  const std::vector<ReplicaPlacement>& placements() const { return placements_; }
  // Returns the levels at which the replicas meet.
  const std::vector<ReplicaLevel>& levels() const { return levels_; }
  int tasks() const { return tasks_; }
  // Returns the GPU of a seat, or gpu::MemoryLocation::host.
  int gpu_of(int seat) const;
  // Returns the types of the replicas' devices; one "CPU" for replicas without a placement.
  std::vector<std::string> types() const;
  // Returns the names of the seats' devices, as "/job:localhost/replica:0/task:0/device:CPU:0".
  std::vector<std::string> names() const;
  // Returns "('a', 'b')", "('a',)" or "['a']", as Python prints the names.
  std::string to_text(char open = '(', char close = ')') const;
  // Returns the first replica on the device; nothing if there is none.
  std::optional<int> local_on(std::string_view device) const;
  std::string host_name() const;  // Names the processors of this process, as a device.
  // True if the name is that of another process's device.
  bool is_elsewhere(std::string_view device) const;

 private:
  DeviceName device(int seat) const;

  int replicas_ = 1;
  std::vector<ReplicaPlacement> placements_;  // Is indexed by seat, or empty.
  std::vector<ReplicaLevel> levels_;
  DeviceName home_;
  int tasks_ = 1;
};

}  // namespace lockstep::detail
