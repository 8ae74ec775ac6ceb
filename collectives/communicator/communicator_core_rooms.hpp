// SPDX-License-Identifier: Apache-2.0
// The memory in which the members of a communicator meet: all of them, where they are on one node, or those of each
// node.
#pragma once

#include <memory>
#include <vector>

#include "collectives/communicator/communicator_core.hpp"

namespace lockstep::detail {

// Members to each core of the node of this one.
double crowding(const Topology& topology, const std::vector<int>& ranks, std::size_t me);

// For all members; nothing where they are on several nodes, or share no memory. All of them call it.
std::unique_ptr<node::Room> room_for(Exchange& exchange, const Topology& topology, const std::vector<int>& ranks,
                                     const CommunicatorOptions& options, node::MemoryLineage lineage);

// Where members are on several nodes, for those of mine, if every node can have one. All of them call it.
NodeRoom node_room_for(Exchange& exchange, const Topology& topology, const std::vector<int>& ranks,
                       const CommunicatorOptions& options);

}  // namespace lockstep::detail
