// SPDX-License-Identifier: Apache-2.0
// Runs the members of a communicator as threads of one process.
#include "collectives/communicator/local.hpp"

#include <algorithm>
#include <numeric>
#include <thread>

#include "collectives/engine/local_transport.hpp"
#include "topology/description.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep {

std::shared_ptr<const Topology> local_topology(int size) {
  const auto cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  MachineShape machine;
  machine.model = "threads of one process";
  for (int core = 0; core < cores; ++core) machine.pus.push_back({.os_index = core, .core = core});
  return std::make_shared<const Topology>(describe({{std::move(machine), 1, size}}));
}

void run_members(int size, const std::function<void(Communicator&)>& body, CommunicatorOptions options,
                 WaitLimits wait_limits, const Log& log) {
  run_members(local_topology(size), body, std::move(options), wait_limits, log);
}

void run_members(std::shared_ptr<const Topology> topology, const std::function<void(Communicator&)>& body,
                 CommunicatorOptions options, WaitLimits wait_limits, const Log& log) {
  std::vector<int> ranks(static_cast<std::size_t>(topology->size()));
  std::iota(ranks.begin(), ranks.end(), 0);
  const auto member = [&](Exchange& exchange) {
    Communicator communicator(exchange, topology, ranks, local_transport, options);
    body(communicator);
  };
  run_local(topology->size(), member, wait_limits, log);
}

}  // namespace lockstep
