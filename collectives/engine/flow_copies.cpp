// SPDX-License-Identifier: Apache-2.0
// Copies pieces of blocks, and finds the members that have not announced theirs.
#include "collectives/engine/flow_copies.hpp"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

// Returns true if the part's round in the node is the last one of its segment.
bool is_in_last_node_round(const Operation& operation, const OperationPart& part) {
  return part.node_rounds + 1 == operation.plan().node_round_count();
}

// Copies the next piece of a block from a member's output if the block is there. Returns true if it moved.
bool copy_piece(Operation& operation, OperationPart& part, int source, int block) {
  if (!operation.flow->is_ready(source, part.segment)) return false;
  const Blocks& blocks = operation.plan().node_plans_of(part.segment).back().front()->spec.output_blocks;
  const std::size_t element = operation.plan().spec.element_bytes;
  const std::size_t bytes = blocks.count(block) * element;
  CopiedBlocks& copied = part.copied;
  if (std::exchange(copied.current, block) != block) copied.bytes = 0;
  const std::size_t at = (first_of(operation, part) + blocks.offset(block)) * element + copied.bytes;
  const std::size_t piece = std::min(node::most_of_turn, bytes - copied.bytes);
  if (piece > 0 && !operation.flow->copy(source, at, piece)) return false;
  copied.bytes += piece;
  if (copied.bytes < bytes) return true;
  copied.members.set(static_cast<std::size_t>(block));
  copied.current = -1;
  copied.bytes = 0;
  return true;
}

// Copies a piece of this member's block from the source.
CopiedPiece forward_block(Operation& operation, OperationPart& part, int me) {
  const int source = operation.plan().flow.source;
  const bool moved = me == source || copy_piece(operation, part, source, me);
  const bool is_done = me == source || part.copied.members.test(static_cast<std::size_t>(me));
  return {moved, is_done ? &part : nullptr};
}

// Copies a piece of another member's block, beginning behind this member's own.
CopiedPiece copy_block(Operation& operation, OperationPart& part, int me, int size) {
  const int source = operation.plan().flow.source;
  CopiedBlocks& copied = part.copied;
  if (me == source) copied.members.set();
  copied.members.set(static_cast<std::size_t>(me));
  bool moved = false;
  const int first = copied.current >= 0 ? copied.current : wrap(me + 1, size);
  for (int i = 0; i < size && !moved; ++i) {
    const int block = wrap(first + i, size);
    if (copied.members.test(static_cast<std::size_t>(block))) continue;
    moved = copy_piece(operation, part, source >= 0 ? source : block, block);
  }
  const bool is_done = copied.members.count() >= static_cast<std::size_t>(size);
  return {moved || is_done, is_done ? &part : nullptr};
}

// Copies a piece of the first segment that has one, among those in their last round in the node or among the others.
CopiedPiece copy_first(Operation& operation, const node::Room& room, bool is_last_round) {
  int after = -1;
  for (;;) {
    OperationPart* next = nullptr;
    for (OperationPart& part : operation.parts) {
      const bool waits = part.stage == PartStage::in_node && is_in_last_node_round(operation, part) == is_last_round;
      if (waits && part.segment > after && (next == nullptr || part.segment < next->segment)) next = &part;
    }
    if (next == nullptr) return {};
    const CopiedPiece piece = is_last_round ? copy_block(operation, *next, room.index(), room.size())
                                            : forward_block(operation, *next, room.index());
    if (piece.moved) return piece;
    after = next->segment;
  }
}

}  // namespace

// A block comes in the first round, unless it is empty. Segments may come in another order.
void announce_ready(Operation& operation) {
  const Plan& plan = operation.plan();
  if (plan.flow.source >= 0) return;  // all copy from the source
  int ready = plan.segments;
  for (const OperationPart& part : operation.parts) {
    const bool has_come = part.round > 0 || part.stage == PartStage::in_node;
    const int next = part.segment + (has_come ? static_cast<int>(operation.parts.size()) : 0);
    ready = std::min(ready, next);
  }
  operation.flow->set_ready(ready);
}

CopiedPiece copy_next_piece(Operation& operation, const node::Room& room) {
  const CopiedPiece forwarded = copy_first(operation, room, false);
  return forwarded.moved ? forwarded : copy_first(operation, room, true);
}

const std::vector<int>& members_in_flow(const Operation& operation) {
  return operation.plan().last.rounds.back().node_steps.front().members;
}

IndexSet peers_in_flow(const Operation& operation, const node::Room& room) {
  IndexSet local = operation.flow->missing();
  const int source = operation.plan().flow.source;
  for (const OperationPart& part : operation.parts) {
    if (part.stage != PartStage::in_node || !operation.flow->is_flowing()) continue;
    for (int member = 0; member < room.size(); ++member) {
      const bool is_needed =
          source < 0 ? !part.copied.members.test(static_cast<std::size_t>(member)) : member == source;
      if (is_needed && member != room.index() && !operation.flow->is_ready(member, part.segment)) local.insert(member);
    }
  }
  IndexSet all;
  for (const int member : local.members()) all.insert(members_in_flow(operation)[static_cast<std::size_t>(member)]);
  return all;
}

}  // namespace lockstep
