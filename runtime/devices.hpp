// SPDX-License-Identifier: Apache-2.0
// Where replicas are: "cpu:1", "/job:worker/task:1/device:GPU:0". The processors of a machine are as many devices as it
// is divided into; a replica's thread stays on its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/base/index_set.hpp"
#include "topology/base/log.hpp"
#include "topology/machine_shape.hpp"

namespace lockstep {

struct DeviceName {
  std::string job = "localhost";
  int task = 0;
  std::string type;  // "CPU" or "GPU"
  int index = 0;
  bool operator==(const DeviceName&) const = default;
};

// "cpu:0", "/gpu:1", "device:CPU:0", with "/job:worker/replica:0/task:1" before it or not, in any case; an Error usage
// for anything else.
DeviceName parse_device(std::string_view words);
std::string to_string(const DeviceName& device);  // "/job:localhost/replica:0/task:0/device:CPU:0"
// Whether that is what is meant, by what is said: "cpu:1" is so on every process, "/task:1/cpu:1" on that one alone.
bool is_meant(std::string_view words, const DeviceName& device);

// What there is of a type, "cpu" or "gpu", for this process: "cpu:0" for each core that it may use, "gpu:0" for each
// GPU that it sees and this build can use.
std::vector<std::string> physical_devices(std::string_view type);

namespace detail {

std::string upper(std::string_view words);

// Where a replica of this process runs.
struct ReplicaPlacement {
  DeviceName device;
  std::string place;        // "core 1", for people
  std::vector<int> cpus;    // as the system counts them; none: wherever the system likes
  SharedUnits within = {};  // what all of it shares
  // Of a replica on a GPU: its number; else gpu::MemoryLocation::host.
  int gpu() const;
};
// The machine in so many pieces.
std::vector<ReplicaPlacement> placements_for(int replicas);
// Those of the names; an Error usage for one that is not there, with what is, and for one that comes twice.
std::vector<ReplicaPlacement> placements_for(const std::vector<std::string>& devices);

// While it lives, this thread stays on those processors. Where the system refuses, it runs where it is.
class ScopedCpuBinding {
 public:
  explicit ScopedCpuBinding(const std::vector<int>& cpus);
  ~ScopedCpuBinding();
  ScopedCpuBinding(const ScopedCpuBinding&) = delete;
  ScopedCpuBinding& operator=(const ScopedCpuBinding&) = delete;

 private:
  std::vector<int> before_;  // none: it was not moved
};

}  // namespace detail
}  // namespace lockstep
