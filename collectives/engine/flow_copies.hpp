// SPDX-License-Identifier: Apache-2.0
// Chooses and copies the pieces of an operation in a flow (node::SegmentFlow). On the root's node, blocks
// that this member passes on come first, because other nodes wait for them. Among equals, earlier segments come first.
#pragma once

#include <vector>

#include "collectives/engine/operation.hpp"
#include "topology/base/index_set.hpp"

namespace lockstep {

// Tells if a piece was copied or a round ended, and names the part whose round in the node has ended.
struct CopiedPiece {
  bool moved = false;
  OperationPart* ends_round_of = nullptr;
};

// Tells the node's members of how many segments this one has its block.
void announce_ready(Operation& operation);
// Copies the next piece that is there, of at most 64 KiB. Throws Error peer_failed if a process that it reads from is
// gone.
CopiedPiece copy_next_piece(Operation& operation, const node::Room& room);
// Returns the ranks of the node's members.
const std::vector<int>& members_in_flow(const Operation& operation);
// Returns the ranks whose step or block the operation waits for.
IndexSet peers_in_flow(const Operation& operation, const node::Room& room);

}  // namespace lockstep
