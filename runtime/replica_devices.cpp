// SPDX-License-Identifier: Apache-2.0
// Names the devices of a process's replicas.
#include "runtime/replica_devices.hpp"

#include <utility>

#include "collectives/gpu/memory_location.hpp"
#include "topology/base/text.hpp"

namespace lockstep::detail {

void ReplicaDevices::place(std::vector<ReplicaPlacement> placements, int replicas) {
  placements_ = std::move(placements);
  replicas_ = replicas;
  std::vector<SharedUnits> within(static_cast<std::size_t>(replicas));
  for (std::size_t i = 0; i < placements_.size(); ++i) within[i] = placements_[i].within;
  levels_ = replica_levels(within);
}

void ReplicaDevices::set_home(std::string job, int task, int tasks) {
  home_ = {.job = std::move(job), .task = task, .type = {}};
  tasks_ = tasks;
}

int ReplicaDevices::gpu_of(int seat) const {
  return placements_.empty() ? gpu::MemoryLocation::host : placements_[static_cast<std::size_t>(seat)].gpu();
}

std::vector<std::string> ReplicaDevices::types() const {
  std::vector<std::string> all;
  for (const ReplicaPlacement& each : placements_) all.push_back(each.device.type);
  if (all.empty()) all.emplace_back("CPU");
  return all;
}

DeviceName ReplicaDevices::device(int seat) const {
  const auto i = static_cast<std::size_t>(seat);
  return {.job = home_.job,
          .task = home_.task,
          .type = placements_.empty() ? "CPU" : placements_[i].device.type,
          .index = placements_.empty() ? seat : placements_[i].device.index};
}

std::vector<std::string> ReplicaDevices::names() const {
  std::vector<std::string> all;
  all.reserve(static_cast<std::size_t>(replicas_));
  for (int local = 0; local < replicas_; ++local) all.push_back(to_string(device(local)));
  return all;
}

std::string ReplicaDevices::host_name() const {
  return to_string(DeviceName{.job = home_.job, .task = home_.task, .type = "CPU"});
}

std::string ReplicaDevices::to_text(char open, char close) const {
  const std::vector<std::string> all = names();
  return text(open, '\'', join(all, "', '"), all.size() == 1 && open == '(' ? "'," : "'", close);
}

std::optional<int> ReplicaDevices::local_on(std::string_view device) const {
  for (int local = 0; local < replicas_; ++local) {
    if (is_meant(device, this->device(local))) return local;
  }
  return std::nullopt;
}

bool ReplicaDevices::is_elsewhere(std::string_view device) const {
  DeviceName there = parse_device(device);
  there.job = home_.job;
  there.task = home_.task;
  if (is_meant(device, there)) return false;
  for (there.task = 0; there.task < tasks_; ++there.task) {
    if (is_meant(device, there)) return true;
  }
  return false;
}

}  // namespace lockstep::detail
