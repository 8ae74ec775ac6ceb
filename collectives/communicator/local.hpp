// SPDX-License-Identifier: Apache-2.0
// Communicators whose members are threads of one process: for strategies with several replicas in a process, and
// for tests.
#pragma once

#include <functional>

#include "collectives/communicator/communicator.hpp"

namespace lockstep {

// The topology of so many members on one node like this one, as far as the number of its processors tells.
std::shared_ptr<const Topology> local_topology(int size);

// Runs `body` on `size` threads, each with its communicator, and waits for all. When a body throws, the others are
// told, and the first exception is thrown on.
void run_members(int size, const std::function<void(Communicator&)>& body, CommunicatorOptions options = {},
                 Patience patience = {}, const Log& log = Log());
// The same members on a machine that one does not have; as many as the topology has.
void run_members(std::shared_ptr<const Topology> topology, const std::function<void(Communicator&)>& body,
                 CommunicatorOptions options = {}, Patience patience = {}, const Log& log = Log());

}  // namespace lockstep
