// SPDX-License-Identifier: Apache-2.0
// Names the devices of replicas: "cpu:1", "/job:worker/task:1/device:GPU:0". A machine's processors are divided into
// several devices, and a replica's thread stays on its own.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "topology/base/index_set.hpp"
#include "topology/base/log.hpp"
#include "topology/machine_shape.hpp"

namespace lockstep {

// Identifies a device by its task in the cluster, and its number there.
struct DeviceName {
  std::string job = "localhost";
  int task = 0;
  std::string type;  // Is "CPU" or "GPU".
  int index = 0;
  bool operator==(const DeviceName&) const = default;
};

// Parses "cpu:0", "/gpu:1" or "device:CPU:0", with an optional "/job:worker/replica:0/task:1" before it, in any case.
// Throws Error usage for anything else.
DeviceName parse_device(std::string_view words);
std::string to_string(const DeviceName& device);  // Returns "/job:localhost/replica:0/task:0/device:CPU:0".
// True if the text names the device. "cpu:1" names one on every process, "/task:1/cpu:1" on one process only.
bool is_meant(std::string_view words, const DeviceName& device);

// Returns the devices of a type, "cpu" or "gpu", of this process. "cpu:0" is a core that it may use; "gpu:0" is a GPU
// that it sees and this build supports. Throws Error usage for another type.
std::vector<std::string> physical_devices(std::string_view type);

namespace detail {

// Returns the text in upper case.
std::string upper(std::string_view words);

// Tells where a replica of this process runs.
struct ReplicaPlacement {
  DeviceName device;
  std::string place;        // Is for people: "core 1".
  std::vector<int> cpus;    // Holds the system's numbers. Empty means any processor.
  SharedUnits within = {};  // Holds the units that all its processors share.
  // Returns the number of the replica's GPU, or gpu::MemoryLocation::host.
  int gpu() const;
};
// Divides the machine into `replicas` parts.
std::vector<ReplicaPlacement> placements_for(int replicas);
// Returns the placements of named devices. Throws Error usage for a missing device, listing those that exist, and for
// a repeated one.
std::vector<ReplicaPlacement> placements_for(const std::vector<std::string>& devices);

// Keeps this thread on the processors while it lives. If the system refuses, the thread runs where it is.
class ScopedCpuBinding {
 public:
  // Binds this thread to these CPUs until the object ends.
  explicit ScopedCpuBinding(const std::vector<int>& cpus);
  ~ScopedCpuBinding();
  ScopedCpuBinding(const ScopedCpuBinding&) = delete;
  ScopedCpuBinding& operator=(const ScopedCpuBinding&) = delete;

 private:
  std::vector<int> before_;  // Holds the binding to restore. Empty if the thread was not moved.
};

}  // namespace detail
}  // namespace lockstep
