// SPDX-License-Identifier: Apache-2.0
// Sends the messages between members of one node through the node's memory, and all others by another transport.
//
// CommunicatorMember puts it around the transport of a communicator whose members share memory. Small messages are
// copied into the receiver's ring, so that their senders go on at once. Larger ones are read from the sender's memory
// if the system permits it and that is faster, and otherwise go through the ring in parts.
#pragma once

#include <memory>
#include <vector>

#include "collectives/engine/transport.hpp"
#include "collectives/node/room.hpp"

namespace lockstep {

// Takes over the transport. `node_members` lists the members of the room in its order, by their ranks in the
// communicator. The room must outlive all calls, but not the destructor.
std::unique_ptr<Transport> node_transport(std::unique_ptr<Transport> between_nodes, node::Room& room,
                                          std::vector<int> node_members);

}  // namespace lockstep
