// SPDX-License-Identifier: Apache-2.0
// Runs communicators whose members are threads of one process. Strategies with several replicas in a process use them,
// and so do tests.
#pragma once

#include <functional>

#include "collectives/communicator/communicator.hpp"
#include "topology/exchange.hpp"

namespace lockstep {

// Returns the topology of `size` members on one node with as many cores as this process sees processors.
std::shared_ptr<const Topology> local_topology(int size);

// Runs `body` on `size` threads, each with its own communicator, and waits for all. If a body throws, the other members
// are told, and the first exception is rethrown here.
void run_members(int size, const std::function<void(Communicator&)>& body, CommunicatorOptions options = {},
                 WaitLimits wait_limits = {}, const Log& log = Log());
// Runs one thread for each member of `topology`, which may describe a machine that is not at hand.
void run_members(std::shared_ptr<const Topology> topology, const std::function<void(Communicator&)>& body,
                 CommunicatorOptions options = {}, WaitLimits wait_limits = {}, const Log& log = Log());

}  // namespace lockstep
