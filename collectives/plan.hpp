// SPDX-License-Identifier: Apache-2.0
// Holds one member's request, the part of it that all members must agree on, and the plan that was made for it. All are
// pure values. The planner makes a plan from a specification; the engine runs it with memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/fingerprints.hpp"
#include "collectives/shape.hpp"

namespace lockstep {

// Is one member's request after the check. Counts are in elements, with the meaning that they have in Shape.
struct Spec {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  Order order = Order::fast;
  // Holds the size of an element; the user's own types have any size.
  std::size_t element_bytes = 4;
  std::size_t count = 0;
  int root = 0;
  bool commutes = true;  // false for a user's function that says so
  bool in_place = false;
  // Hold the blocks of the input and the output, if the collective cuts them.
  Blocks input_blocks = {};
  Blocks output_blocks = {};
  // Allows messages between nodes in a narrower format, if it saves time.
  WireFormat wire = WireFormat::as_is;
  Fingerprints fingerprints = {};  // compared by members; no plan depends on them
  bool operator==(const Spec&) const = default;
};

// True if messages of such a call may be narrower than its data. That holds for all_reduces of 32-bit floats by sum or
// avg in the fast order, which promises no order of additions.
bool may_be_narrow(const Spec& spec);

// Is the part of a request that all members must agree on before data moves. It lacks each member's own affairs: the
// places of its blocks and its use of one buffer in place. For the rooted v-forms and all_to_all_v it lacks the counts.
struct Signature {
  Collective collective = Collective::barrier;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  Order order = Order::fast;
  WireFormat wire = WireFormat::as_is;
  std::int32_t root = 0;
  std::uint32_t element_bytes = 0;
  std::uint64_t count = 0;
  std::uint64_t counts_hash = 0;  // of the v-forms for which all members know all counts; else 0
  std::uint8_t is_ordered = 0;    // 1: a user's function that does not commute
  Fingerprints fingerprints = {};
  bool operator==(const Signature&) const = default;
};

// Returns the signature of a request; fields that the collective does not use keep their defaults.
Signature signature_of(const Spec& spec);
// Returns 64 bits of the signature, never 0. Equal signatures have equal hashes.
std::uint64_t hash(const Signature& signature);
// Returns text such as "all_reduce of 1000 f32, sum" or "broadcast of 3 f64 from rank 1".
std::string to_text(const Signature& signature);

// Identifies the choice that a plan stands for, in parts that Plan::choice_number() makes one number of.
struct PlanChoice {
  // Names the question of a vote that members take before a call, on a plan of its own. Each value is one bit, and is
  // part of the number that members exchange.
  enum class Vote : std::uint64_t { no_vote = 0, stream_path = 1, data_location = 2, tensor_locations = 4 };

  // Hashes the algorithm on which members agree, the segments, the piece size and the wire format.
  std::uint64_t method_hash = 0;
  Vote vote = Vote::no_vote;
  // Hashes the counts of the tensors in a vote on their locations; else 0.
  std::uint64_t tensor_hash = 0;

  constexpr std::uint64_t number() const { return method_hash + (tensor_hash | static_cast<std::uint64_t>(vote)); }
};

struct Plan;

// Tells how the members of a node share a broadcast's segments as they come; see node::SegmentFlow. Then they skip the
// steps of the schedule's rounds in the node. Nodes decide that for themselves.
struct NodeFlow {
  std::shared_ptr<const Plan> plan;  // null: each segment takes its steps
  int source = -1;                   // the member of the node that has all data from the beginning; -1: none
};

// Tells how a call is done: a schedule for one segment, and the number of segments that flow through it.
struct Plan {
  Spec spec;
  int size = 1;
  int index = 0;
  std::string algorithm;    // of this member
  std::string agreed = {};  // the algorithm on which members agree, if it is another one
  bool in_node = false;     // done in the memory that the members share, without a schedule
  bool is_step = false;     // a step of another plan's round; long work in it lets other segments go on meanwhile
  // Cut the buffer: segment i begins at element i * segment. A single segment is the whole buffer.
  int segments = 1;
  std::size_t segment = 0;
  int depth = 1;      // segments that run at the same time
  Schedule schedule;  // of every segment but the last, with offsets from its beginning
  Schedule last;      // of the last segment, or of the only one
  // Hold the plans of the rounds in a node's memory, in their order. All segments have the same, but for the counts.
  using IntraNodePlans = std::vector<std::vector<std::shared_ptr<const Plan>>>;
  IntraNodePlans node_plans;
  IntraNodePlans last_node_plans;
  NodeFlow flow;
  // Is the place of the result in the output, for the division of avg.
  Slice result;
  std::size_t input_count = 0;  // elements of the whole input and output
  std::size_t output_count = 0;
  PlanChoice choice;
  // Holds the reason of the choice, for people.
  std::string why;
  WireFormat wire = WireFormat::as_is;  // of messages between nodes
  std::size_t narrow_sends = 0;         // most elements that a round sends in that format
  // Holds the most elements that a round receives in that format.
  std::size_t narrow_receives = 0;
  bool in_stream = false;  // all members have given a stream of a GPU
  // Holds the call on which members vote, if this plan is only that vote.
  std::optional<Spec> stands_for = {};

  // Returns the number that members compare; it is equal on all members that chose alike.
  std::uint64_t choice_number() const {
    constexpr std::uint64_t stream_increment = 8;  // outside the bits of PlanChoice::Vote
    return choice.number() + (in_stream ? stream_increment : 0);
  }
  const std::string& agreed_algorithm() const { return agreed.empty() ? algorithm : agreed; }
  // Return the schedule, and the plans in a node's memory, of a segment by its number.
  const Schedule& schedule_of(int number) const { return number + 1 == segments ? last : schedule; }
  const IntraNodePlans& node_plans_of(int number) const {
    return number + 1 == segments ? last_node_plans : node_plans;
  }
  // Returns the number of steps that each segment takes in the room.
  std::size_t node_round_count() const { return last_node_plans.size(); }
};

}  // namespace lockstep
