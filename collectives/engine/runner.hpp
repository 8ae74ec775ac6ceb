// SPDX-License-Identifier: Apache-2.0
// Runs schedules: binds their slices to memory, posts rounds on the transport, and copies and reduces between them. It
// decides which part may use a lane, and when. It knows nothing of time, failure or control messages.
//
// A Core owns it, and calls it inside the engine's guard. Its operations belong to the OperationTable.
#pragma once

#include <optional>

#include "collectives/engine/operation.hpp"
#include "collectives/node/slot_pages.hpp"
#include "collectives/node/tuning_trial.hpp"
#include "topology/base/index_set.hpp"

namespace lockstep {

// Holds the streams for copies between the host and GPUs, and the operations with data on its way there.
struct DeviceCopies {
  gpu::CopyStreams streams;
  std::vector<Operation*> operations;
};

// Runs the operations of one core. The transport, the room and the limits must outlive it.
class Runner {
 public:
  // A null room means that there is no shared memory for the node.
  Runner(Transport& transport, node::Room* room, const node::PollLimits& poll_limits);

  // Gives the operation its places in the queues. Must be called in the order of the calls.
  void enlist(Operation& operation);
  // Advances an operation as far as it goes without waiting. Returns true if anything moved. If nothing is left, the
  // operation is finished. Throws any exception of the transport or of the user's reduction.
  bool advance(Operation& operation);
  // Enlists and advances a call in the node's memory that its slot ran before, by at most these looks. No other call
  // may be under way.
  void repeat(Operation& operation, node::PollLimits poll_limits);
  // True if repeat() would only look at memory, or read another process's.
  bool only_looks(const Operation& operation) const { return in_node_.next < operation.tuned_until; }

  // Returns true if all point-to-point messages that were started have been posted, so that another one may follow
  // them.
  bool has_posted_all_messages() const { return messages_.serving == messages_.next; }

  // Returns true if `first` holds the lane or the room that `second` waits for.
  bool is_ahead(const Operation& first, const Operation& second) const;
  // Returns true if the operation has begun, and only waits until earlier calls leave the room.
  static bool waits_for_its_turn(const Operation& operation);
  const node::PollLimits& poll_limits() const { return poll_limits_; }
  // Returns the ranks that the operation exchanges posted messages with, or waits for in the room.
  IndexSet peers(const Operation& operation) const;
  // Returns the ranks of this node that are in another call, as the node's memory shows.
  IndexSet in_other_call(const Operation& operation) const;
  // Returns the position of the first part that is not done, such as "round 3 of 14".
  static std::string where(const Operation& operation);
  // Ends this member's work in GPU streams if another member has given up, since that member waits for it.
  void end_if_given_up() {
    if (room_ != nullptr) room_->access().end_if_given_up();
  }
  // Returns the memory of idle slots and pages to the system. Returns false if this member is in a call, or if another
  // member may still read there.
  bool give_back_memory() {
    return room_ == nullptr || (in_node_.serving == in_node_.next && slot_pages_->give_back(room_->ring().last()));
  }
  // Gives up everything after a failure. Returns false if other members of the node, or copies under way, may still use
  // this member's memory.
  bool abandon();

 private:
  struct LaneQueue {
    std::uint64_t next = 0;
    std::uint64_t serving = 0;
  };

  LaneQueue& queue_of(const Operation& operation, const OperationPart& part) {
    return operation.is_message() ? messages_ : queues_[static_cast<std::size_t>(part.lane)];
  }
  static void allocate_workspaces(Operation& operation);
  bool advance_in_node(Operation& operation);
  void begin_in_node(Operation& operation);
  bool has_uploaded(Operation& operation);
  bool abandon_device_copies() noexcept;
  bool acquire_lane(Operation& operation, OperationPart& part);
  bool run(Operation& operation, OperationPart& part);
  bool post(Operation& operation, OperationPart& part);
  // Lets the next operation into the room.
  void leave_room() {
    ++in_node_.serving;
    slot_pages_->note_finished(room_->ring().last());
  }
  static std::uint64_t room_turn_of(const Operation& operation, const OperationPart& part);
  void begin_node_step(Operation& operation, OperationPart& part);
  bool advance_node_step(Operation& operation, OperationPart& part);
  bool advance_flow(Operation& operation);
  bool end_flow(Operation& operation);
  void finish_node_round(Operation& operation, OperationPart& part);
  void finish_round(Operation& operation, OperationPart& part);
  void finish(Operation& operation, OperationPart& part);
  void begin(Operation& operation);
  void complete(Operation& operation);

  Transport& transport_;
  node::Room* room_;
  std::optional<node::SlotPages> slot_pages_;  // of the room
  const node::PollLimits& poll_limits_;
  LaneQueue in_node_;
  node::TuningTrial trial_;
  // Points to the operation in the room; null if none.
  Operation* in_room_ = nullptr;
  DeviceCopies device_copies_;
  // Gives the lane of the next part. It is the same on all members, since their plans agree.
  int next_lane_ = 0;
  // Holds the queues of the lanes of collective calls.
  std::vector<LaneQueue> queues_;
  // Holds the queue of point-to-point messages. A message is served until it has posted its last round.
  LaneQueue messages_;
};

}  // namespace lockstep
