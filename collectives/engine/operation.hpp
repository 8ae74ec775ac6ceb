// SPDX-License-Identifier: Apache-2.0
// A call in flight: what it is, how far each of its parts has come, and how long it has been quiet. Kept in slots
// that are used again with all their memory, so that a repeated call allocates nothing.
#pragma once

#include <memory>
#include <new>
#include <vector>

#include "collectives/engine/control_message.hpp"
#include "collectives/engine/device_copy_pipeline.hpp"
#include "collectives/engine/transport.hpp"
#include "collectives/node/call.hpp"
#include "collectives/node/node_collective.hpp"
#include "topology/base/text.hpp"

namespace lockstep {

// Uninitialised memory that begins at a cache line and never shrinks.
class AlignedBuffer {
 public:
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

// What a part needs while it runs. It stays with the slot, whose turn follows from the order of the program's calls
// alone: so what a first round of calls has allocated is enough for all that repeat it, whatever the timing.
struct Workspace {
  AlignedBuffer scratch;
  AlignedBuffer narrow;  // what is sent in the wire format, then what is received so
  std::vector<SendDescriptor> sends;
  std::vector<ReceiveDescriptor> receives;
};

// A part is `meeting` during a round that is done in the memory of the node.
enum class PartStage : std::uint8_t { queued, running, posted, meeting, done };

// The segments i, i + width, i + 2 width, ... of an operation, one after the other on one lane.
struct OperationPart {
  PartStage stage = PartStage::queued;
  int lane = -1;           // of an exchange: none until it runs
  std::uint64_t turn = 0;  // in the queue for the lane
  int segment = 0;
  std::size_t round = 0;
  int lap = 0;
  std::size_t node_rounds = 0;  // rounds of the segment that were done in the node
  std::size_t node_step = 0;    // what of the round is done there next
  Workspace* space = nullptr;
};

// How long nothing has moved, and what has been done about it.
struct StallWatch {
  static constexpr Duration unknown{-1};
  Duration since = unknown;
  Duration looked = {};
  Duration next_ask = {};
  Duration ask_gap = {};
  Duration asked = {};  // when all were asked
  bool asked_for_warning = false;
  bool warned = false;
  bool asked_for_limit = false;
};

enum class OperationState : std::uint8_t { unused, flying, finished, failed };

struct Operation {
  OperationState state = OperationState::unused;
  std::uint32_t slot = 0;
  std::uint32_t generation = 0;
  bool at_home = false;  // kept for repeating one plan, and not given to others
  bool begun = false;
  node::AddressQueries address_queries = node::AddressQueries::none;  // when it was called
  Call call = {};
  Signature signature = {};
  std::uint64_t number = 0;   // collective calls and exchanges are counted apart, each from 1
  std::int64_t begun_ns = 0;  // where a timeline is kept
  std::uint32_t call_tag = 0;
  std::uint32_t agreements_missing = 0;  // bit k: the member 2^k before me has not said yet that it is in this call
  std::uint32_t agreements_held = 0;     // bit k: what I have said to the member 2^k after me is not on its way yet
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t most_messages = 0;  // of a round, to send or to receive
  AlignedBuffer scaled = {};      // the input times the factor, where there is no other place for it
  std::vector<OperationPart> parts = {};
  std::vector<Workspace> spaces = {};  // one for each part, at least
  std::size_t parts_left = 0;
  node::NodeCollective work = {};  // instead of parts, of what is done in the node; or of the part that meets there
  std::uint64_t turn_in_node = 0;  // the first one
  const OperationPart* part_in_room = nullptr;  // the part that is in the room
  Call node_call = {};                          // what it does there
  DeviceCopyPipeline device_copies = {};        // of data in a GPU's memory
  StallWatch quiet = {};
  std::vector<std::optional<AnswerMessage>> answers = {};  // by rank, once asked for

  bool is_exchange() const { return signature.collective == Collective::exchange; }
  // Nothing of it begins before that is over.
  bool is_agreeing() const { return (agreements_missing | agreements_held) != 0; }
  const Plan& plan() const { return *call.plan; }
};

// "all_reduce of 1000 f32, sum (call 12)"; "recv of 400 u8 (message 3)"
inline std::string describe(const Operation& operation) {
  if (!operation.is_exchange()) return text(to_text(operation.signature), " (call ", operation.number, ')');
  const Plan& plan = operation.plan();
  return text(plan.algorithm, " of ", plan.spec.count, ' ', to_string(plan.spec.type), " (message ", operation.number,
              ')');
}

}  // namespace lockstep
