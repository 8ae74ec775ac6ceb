// SPDX-License-Identifier: Apache-2.0
// Makes the shared memory of a communicator's members: one room if all are on one node, or one for each node.
#pragma once

#include <memory>
#include <vector>

#include "collectives/communicator/communicator_core.hpp"

namespace lockstep::detail {

// Returns the members per core on the node of member `me`.
double crowding(const Topology& topology, const std::vector<int>& ranks, std::size_t me);

// Makes the room of all members. Returns null if they are on several nodes, or can't share memory. All members call
// it.
std::unique_ptr<node::Room> room_for(Exchange& exchange, const Topology& topology, const std::vector<int>& ranks,
                                     const CommunicatorOptions& options, node::MemoryLineage lineage);

// Makes the room of this node's members, if members are on several nodes and every node can have one. All members call
// it.
NodeRoom node_room_for(Exchange& exchange, const Topology& topology, const std::vector<int>& ranks,
                       const CommunicatorOptions& options);

}  // namespace lockstep::detail
