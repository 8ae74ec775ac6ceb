// SPDX-License-Identifier: Apache-2.0
// Runs schedules: binds their slices to memory, hands rounds to the transport, and does the copies and reductions
// between them. Knows lanes and who may use them when; knows nothing of time, failure or what members tell each other.
#pragma once

#include "collectives/engine/operation.hpp"
#include "topology/base/index_set.hpp"

namespace lockstep {

class Runner {
 public:
  Runner(Transport& transport, node::Room* room, const node::PollLimits& looks);

  // Gives the operation its places in the queues, in the order of the calls.
  void enlist(Operation& operation);
  // Does what can be done now; says whether anything moved. When nothing is left the operation is finished. Throws
  // what the transport or the user's reduction throws.
  bool advance(Operation& operation);
  // Both at once for a call in the node that was done in the same slot before, nothing else being under way.
  void repeat(Operation& operation);

  // Whether `first` has what `second` waits for.
  bool is_ahead(const Operation& first, const Operation& second) const;
  // It has begun, and others are in the room before it; nothing of it is under way meanwhile.
  static bool waits_for_its_turn(const Operation& operation);
  // The members that it has messages posted with.
  IndexSet peers(const Operation& operation) const;
  // Members of this node that are in another call, as its memory shows.
  IndexSet in_another(const Operation& operation) const;
  // "round 3 of 14" of the first part that is not done.
  static std::string where(const Operation& operation);
  // Another member may have failed, and wait for what this one has begun in streams; whatever it does now.
  void end_if_given_up() {
    if (room_ != nullptr) room_->end_if_given_up();
  }
  // After a failure. False: neighbours, or copies that are under way, may still be at this member's memory.
  bool abandon();

 private:
  struct LaneQueue {
    std::uint64_t next = 0;
    std::uint64_t serving = 0;
  };

  LaneQueue& queue_of(const Operation& operation, const OperationPart& part) {
    return operation.is_exchange() ? exchanges_ : queues_[static_cast<std::size_t>(part.lane)];
  }
  static void provide(Operation& operation);
  bool advance_in_node(Operation& operation);
  bool has_uploaded(Operation& operation);
  bool abandon_device_copies() noexcept;
  bool admit(Operation& operation, OperationPart& part);
  bool run(Operation& operation, OperationPart& part);
  bool post(Operation& operation, OperationPart& part);
  static std::uint64_t turn_of_meeting(const Operation& operation, const OperationPart& part);
  void begin_meeting(Operation& operation, OperationPart& part);
  bool advance_meeting(Operation& operation, OperationPart& part);
  void settle(Operation& operation, OperationPart& part);
  void finish(Operation& operation, OperationPart& part);
  void begin(Operation& operation);
  void conclude(Operation& operation);

  Transport& transport_;
  node::Room* room_;
  const node::PollLimits& looks_;
  LaneQueue in_node_;
  Operation* in_room_ = nullptr;  // the one that is served there, while it is under way
  gpu::CopyStreams copy_streams_;
  std::vector<Operation*> with_device_copies_;  // whose data is on its way from or to a GPU
  int next_lane_ = 0;                           // the same on all members, because plans agree
  std::vector<LaneQueue> queues_;               // by lane of collective calls
  LaneQueue exchanges_;                         // an exchange is served until it has posted its last round
};

}  // namespace lockstep
