// SPDX-License-Identifier: Apache-2.0
// Describes a call under way: the request, the progress of each of its parts, and how long it has been quiet.
// Operations live in slots that are reused with all their memory, so a repeated call allocates nothing.
#pragma once

#include <algorithm>
#include <bitset>
#include <memory>
#include <new>
#include <vector>

#include "collectives/engine/control_message.hpp"
#include "collectives/engine/device_copy_pipeline.hpp"
#include "collectives/engine/transport.hpp"
#include "collectives/node/call.hpp"
#include "collectives/node/node_collective.hpp"
#include "collectives/node/segment_flow.hpp"
#include "topology/base/duration.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// Owns uninitialised memory that begins at a cache line and never shrinks.
class AlignedBuffer {
 public:
  // Returns memory of at least that size. Growing discards the old contents. Throws std::bad_alloc. Returns null if
  // nothing was ever needed.
  std::byte* at_least(std::size_t bytes) {
    if (bytes > size_) {
      start_.reset();
      size_ = 0;
      start_.reset(static_cast<std::byte*>(::operator new(bytes, alignment)));
      size_ = bytes;
    }
    return start_.get();
  }

 private:
  static constexpr std::align_val_t alignment{64};
  struct AlignedDeleter {
    void operator()(std::byte* start) const { ::operator delete(start, alignment); }
  };
  std::unique_ptr<std::byte, AlignedDeleter> start_;
  std::size_t size_ = 0;
};

// Holds the memory that a part needs while it runs. It stays with the slot. Slots are taken in the order of the
// program's calls, independent of timing. So the first round of calls allocates enough for all that repeat it.
struct Workspace {
  AlignedBuffer scratch;
  // Holds elements in the wire format: those to send, then those received.
  AlignedBuffer wire_elements;
  std::vector<SendDescriptor> sends;
  std::vector<ReceiveDescriptor> receives;
};

// Tells which blocks of a segment have been copied from other members of the node.
struct CopiedBlocks {
  std::bitset<node::RoomMemory::most_members> members;
  // Name the member whose block is being copied, and its bytes that have been copied.
  int current = -1;
  std::size_t bytes = 0;
};

// Tells how far a part is. It is `in_node` during a round that runs in the memory of the node.
enum class PartStage : std::uint8_t { queued, running, posted, in_node, done };

// Runs the segments i, i + width, i + 2 width, ... of an operation, one after the other on one lane.
struct OperationPart {
  PartStage stage = PartStage::queued;
  // Names the lane. A part of a point-to-point message has none (-1) until it runs.
  int lane = -1;
  // Gives the part's place in the queue for its lane.
  std::uint64_t turn = 0;
  int segment = 0;
  std::size_t round = 0;
  int lap = 0;
  // Counts the rounds of the segment that were done in the node's memory.
  std::size_t node_rounds = 0;
  // Gives the index of the round's next step in the node's memory.
  std::size_t node_step = 0;
  CopiedBlocks copied = {};
  Workspace* workspace = nullptr;
};

// Records how long nothing has moved, and the questions and warnings that followed.
struct StallWatch {
  static constexpr Duration unknown{-1};
  // Records when the wait began, or `unknown` outside a wait.
  Duration since = unknown;
  Duration last_turn = {};
  Duration next_query = {};
  Duration query_interval = {};
  // Records the time of the last question to all members of the call.
  Duration last_query = {};
  bool has_queried_for_warning = false;
  bool has_warned = false;
  bool has_queried_for_limit = false;
};

// Tells if a slot is in use, and how its call stands.
enum class OperationState : std::uint8_t { unused, in_flight, finished, failed };

// Holds a call under way. Its slot owns it; `slot` and `generation` identify the call in tickets.
struct Operation {
  OperationState state = OperationState::unused;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  // If true, the slot repeats one plan and is not given to other calls.
  bool is_reserved = false;
  // True if the call that the slot holds differs in its buffers only from others of its plan.
  bool has_only_buffers = false;
  bool is_begun = false;
  // Holds the room's rule for address queries at the time of the call.
  node::AddressQueries address_queries = node::AddressQueries::none;
  Call call = {};
  Signature signature = {};
  // Numbers the call from 1. Collective calls and point-to-point messages are counted separately.
  std::uint64_t number = 0;
  // Holds the monotonic time of the start if a timeline is kept.
  std::int64_t begun_ns = 0;
  std::uint32_t call_tag = 0;
  // Bit k is set until the member 2^k before this one has said that it is in this call.
  std::uint32_t agreements_missing = 0;
  // Bit k is set while this member's message to the member 2^k after it is not on its way.
  std::uint32_t agreements_held = 0;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  // Bounds the messages that a round sends, and those that it receives.
  std::size_t most_messages = 0;
  // Holds the input times the factor if no other buffer can.
  AlignedBuffer scaled = {};
  std::vector<OperationPart> parts = {};
  // Holds at least one workspace for each part.
  std::vector<Workspace> workspaces = {};
  std::size_t parts_left = 0;
  // Runs a call in the node instead of parts, or the part that is in the room.
  node::NodeCollective node_collective = {};
  // Gives the operation's first turn in the room.
  std::uint64_t first_room_turn = 0;
  // Gives the turn in the room from which the call may not be repeated, but begins again: thresholds may have changed.
  std::uint64_t tuned_until = 0;
  // Points to the part that is in the room; null if none is.
  const OperationPart* part_in_room = nullptr;
  // Holds the call that the part makes in the room.
  Call node_call = {};
  // Shares segments with the node's members. It is null until the first call that may do so.
  std::unique_ptr<node::SegmentFlow> flow = {};
  // Copies the data if it is in GPU memory.
  DeviceCopyPipeline device_copies = {};
  StallWatch stall = {};
  // Holds the answers of the other members by rank. It is empty before the first question.
  std::vector<std::optional<AnswerMessage>> answers = {};

  bool is_message() const { return signature.collective == Collective::sendrecv; }
  // Returns true if members have yet to agree that they make the same call. No data moves before.
  bool is_agreeing() const { return (agreements_missing | agreements_held) != 0; }
  const Plan& plan() const { return *call.plan; }
  // Returns true if members of the node have announced their buffers for a flow of segments, or are about to.
  bool is_in_flow() const {
    if (call.plan->flow.plan == nullptr) return false;
    return flow->state() == node::SegmentFlow::State::asking || flow->is_flowing();
  }
  // Returns true if it waits for a block or a step of the node, and not only for messages.
  bool waits_in_flow() const {
    return is_in_flow() && (!flow->is_flowing() || parts_left == 0 || has_part_in(PartStage::in_node));
  }
  bool has_part_in(PartStage stage) const {
    return std::ranges::any_of(parts, [stage](const OperationPart& part) { return part.stage == stage; });
  }
};

// Returns the round that the part is in.
inline const Round& round_of(const Operation& operation, const OperationPart& part) {
  return operation.plan().schedule_of(part.segment).rounds[part.round];
}

// Returns the first element of the part's segment.
inline std::size_t first_of(const Operation& operation, const OperationPart& part) {
  return static_cast<std::size_t>(part.segment) * operation.plan().segment;
}

// Returns the operation in words: "all_reduce of 1000 f32, sum (call 12)" or "recv of 400 u8 (message 3)".
inline std::string describe(const Operation& operation) {
  if (!operation.is_message()) return text(to_text(operation.signature), " (call ", operation.number, ')');
  const Plan& plan = operation.plan();
  return text(plan.algorithm, " of ", plan.spec.count, ' ', to_string(plan.spec.type), " (message ", operation.number,
              ')');
}

}  // namespace lockstep
