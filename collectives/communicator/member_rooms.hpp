// SPDX-License-Identifier: Apache-2.0
// Makes the shared memory of a communicator's members: one room if all are on one node, or one for each node.
//
// CommunicatorMember calls it once, while it makes the communicator. If one member of a node cannot map the memory, all
// of them use messages.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "collectives/communicator/communicator_options.hpp"
#include "collectives/node/room.hpp"
#include "topology/exchange.hpp"
#include "topology/topology.hpp"

namespace lockstep::detail {

// Owns the room of this member's node, if members are on several nodes and others are on this one. All nodes have one,
// or none has.
struct NodeRoom {
  std::unique_ptr<node::Room> room;
  // Is the size in bytes of the largest element that can be reduced there; 0 if no node has a room.
  std::size_t most_element = 0;
};

// Returns the members per core on the node of member `me`.
double crowding(const Topology& topology, const std::vector<int>& ranks, std::size_t me);

// Returns the members on the node of member `me`, this one included, in the order of their room.
std::vector<int> node_neighbours(const Topology& topology, const std::vector<int>& ranks, std::size_t me);

// Makes the room of all members. Returns null if they are on several nodes, or can't share memory. All members call
// it.
std::unique_ptr<node::Room> room_for(Exchange& exchange, const Topology& topology, const std::vector<int>& ranks,
                                     const CommunicatorOptions& options, node::MemoryLineage lineage);

// Makes the room of this node's members, if members are on several nodes and every node can have one. All members call
// it.
NodeRoom node_room_for(Exchange& exchange, const Topology& topology, const std::vector<int>& ranks,
                       const CommunicatorOptions& options);

}  // namespace lockstep::detail
