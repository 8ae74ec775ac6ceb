// SPDX-License-Identifier: Apache-2.0
// Describes the wait of an operation: its position, the members, and earlier operations.
#include <algorithm>

#include "collectives/engine/flow_copies.hpp"
#include "collectives/engine/runner.hpp"

namespace lockstep {

bool Runner::waits_for_its_turn(const Operation& operation) {
  return operation.part_in_room == nullptr && !operation.is_in_flow() && operation.has_part_in(PartStage::in_node) &&
         !operation.has_part_in(PartStage::posted);
}

// True if the first operation keeps the second from running: by its turn in the room, or in a common lane.
bool Runner::is_ahead(const Operation& first, const Operation& second) const {
  if (first.is_message() != second.is_message()) return false;
  if (first.is_message()) return first.number < second.number;
  if (first.plan().node_round_count() > 0 && second.plan().node_round_count() > 0)
    return first.first_room_turn < second.first_room_turn;
  if (first.plan().in_node || second.plan().in_node)
    return first.plan().in_node && second.plan().in_node && first.first_room_turn < second.first_room_turn;
  for (const OperationPart& theirs : first.parts) {
    for (const OperationPart& mine : second.parts) {
      if (theirs.lane == mine.lane && theirs.stage != PartStage::done &&
          theirs.turn == queues_[static_cast<std::size_t>(mine.lane)].serving)
        return theirs.turn < mine.turn;
    }
  }
  return false;
}

// Returns the members whose messages or steps the operation waits for now.
IndexSet Runner::peers(const Operation& operation) const {
  if (operation.plan().in_node) return operation.is_begun ? operation.node_collective.missing() : IndexSet();
  IndexSet all;
  if (operation.part_in_room != nullptr) {
    const IntraNodeStep& node_step =
        round_of(operation, *operation.part_in_room).node_steps[operation.part_in_room->node_step];
    for (const int local : operation.node_collective.missing().members())
      all.insert(node_step.members[static_cast<std::size_t>(local)]);
  }
  if (operation.is_in_flow()) all.insert(peers_in_flow(operation, *room_));
  for (const OperationPart& part : operation.parts) {
    if (part.stage != PartStage::posted) continue;
    for (const SendDescriptor& send : part.workspace->sends) all.insert(send.peer);
    for (const ReceiveDescriptor& receive : part.workspace->receives) all.insert(receive.peer);
  }
  return all;
}

// Returns the members of the node that are in the same step of another call.
IndexSet Runner::in_other_call(const Operation& operation) const {
  IndexSet all;
  if (operation.plan().in_node && !operation.is_begun) {
    // The operation is the next one in the node's memory, and waits until all have agreed on it. No member begins it
    // before that. So a member in this step is in another call.
    const bool is_next = in_node_.serving == operation.first_room_turn;
    for (int member = 0; is_next && member < room_->size(); ++member) {
      if (room_->ring().has_published_in_other_call(member, room_->ring().last() + 1, operation.call_tag))
        all.insert(member);
    }
    return all;
  }
  if (operation.plan().in_node) return operation.node_collective.in_other_call();
  if (operation.is_in_flow()) {
    const auto& members = members_in_flow(operation);
    for (const int local : operation.flow->in_other_call().members())
      all.insert(members[static_cast<std::size_t>(local)]);
    return all;
  }
  if (operation.part_in_room == nullptr) return all;
  const IntraNodeStep& node_step =
      round_of(operation, *operation.part_in_room).node_steps[operation.part_in_room->node_step];
  for (const int local : operation.node_collective.in_other_call().members())
    all.insert(node_step.members[static_cast<std::size_t>(local)]);
  return all;
}

std::string Runner::where(const Operation& operation) {
  if (operation.plan().in_node) {
    if (operation.is_agreeing()) return "before its data";
    if (!operation.is_begun) return "in a queue";
    return text(operation.node_collective.waits_for_gpu() ? "for copies from or to its GPU, " : "", "step ",
                operation.node_collective.steps_done() + 1, " of ", operation.node_collective.steps());
  }
  for (const OperationPart& part : operation.parts) {
    if (part.stage == PartStage::done) continue;
    if (part.stage == PartStage::queued) return operation.is_agreeing() ? "before its data" : "in a queue";
    if (part.stage == PartStage::running) return "for copies from its GPU";
    const auto& rounds = operation.plan().schedule_of(part.segment).rounds;
    std::size_t lap = static_cast<std::size_t>(part.lap) + 1;
    for (std::size_t i = 0; i < part.round; ++i) lap += static_cast<std::size_t>(rounds[i].times);
    return text("round ", lap, " of ", operation.plan().schedule_of(part.segment).laps());
  }
  return operation.device_copies.is_on() ? "for copies to its GPU" : "at its end";
}

}  // namespace lockstep
