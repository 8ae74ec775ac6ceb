// SPDX-License-Identifier: Apache-2.0
// What is asked, by one member, and what was decided about it: pure values. The planner makes a plan from a
// specification; the engine runs it with memory.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "collectives/fingerprints.hpp"
#include "collectives/shape.hpp"

namespace lockstep {

// What one member asks for. Counts as in Shape.
struct Spec {
  Collective collective = Collective::all_reduce;
  DataType type = DataType::f32;
  ReduceOp op = ReduceOp::sum;
  Order order = Order::fast;
  std::size_t element_bytes = 4;
  std::size_t count = 0;
  int root = 0;
  bool commutes = true;  // false for a user's function that says so
  bool in_place = false;
  Blocks gives = {};
  Blocks takes = {};
  WireFormat wire = WireFormat::as_is;  // what messages between nodes may be, where it saves time
  Fingerprints fingerprints = {};       // compared by members; no plan depends on them
  bool operator==(const Spec&) const = default;
};

// Whether messages of such a call may be narrower than its data: sums of 32-bit floats for all, in an order that is
// nobody's promise.
bool may_be_narrow(const Spec& spec);

// What all members must agree on before data moves: a specification without what is a member's own affair (where its
// blocks lie, whether it works in place, and of the rooted v-forms and all_to_all_v the counts).
struct Signature {
  Collective collective = Collective::barrier;
  DataType type = DataType::u8;
  ReduceOp op = ReduceOp::sum;
  Order order = Order::fast;
  WireFormat wire = WireFormat::as_is;
  std::int32_t root = 0;
  std::uint32_t element_bytes = 0;
  std::uint64_t count = 0;
  std::uint64_t counts_hash = 0;  // of the unequal forms that all members know
  std::uint8_t is_ordered = 0;    // 1: a user's function that does not commute
  Fingerprints fingerprints = {};
  bool operator==(const Signature&) const = default;
};

Signature signature_of(const Spec& spec);
// 64 bits of it, never 0.
std::uint64_t hash(const Signature& signature);
// "all_reduce of 1000 f32, sum", "broadcast of 3 f64 from rank 1".
std::string to_text(const Signature& signature);

// How it will be done: a schedule for one segment, and how many segments flow through it, several at a time.
struct Plan {
  Spec spec;
  int size = 1;
  int index = 0;
  std::string algorithm;
  bool in_node = false;  // done in the memory that the members share, without a schedule
  // Segment i is elements [i * segment, ...) of the whole buffer; one segment has all.
  int segments = 1;
  std::size_t segment = 0;
  int depth = 1;      // segments in flight
  Schedule schedule;  // of every segment but the last, with offsets from its beginning
  Schedule last;      // of the last one, or of the only one
  // What its rounds in the memory of a node do there, in their order: the same in every segment but for the counts.
  using IntraNodePlans = std::vector<std::vector<std::shared_ptr<const Plan>>>;
  IntraNodePlans near;
  IntraNodePlans near_last;
  // Where the result lies in the output when all is done, for avg.
  Slice result;
  std::size_t input_count = 0;  // of the whole buffers
  std::size_t output_count = 0;
  std::uint64_t choice = 0;  // equal on all members that decided alike
  std::string why;
  WireFormat wire = WireFormat::as_is;  // of messages between nodes
  std::size_t narrow_sends = 0;         // most elements of a round that are sent so
  std::size_t narrow_receives = 0;
  bool in_stream = false;  // all members have given a stream of a GPU
  // If members only vote in this call on how another one is done: that one.
  std::optional<Spec> stands_for = {};

  const Schedule& schedule_of(int number) const { return number + 1 == segments ? last : schedule; }
  const IntraNodePlans& near_of(int number) const { return number + 1 == segments ? near_last : near; }
  // Its turns in the room: of every segment as many.
  std::size_t meetings() const { return near_last.size(); }
};

}  // namespace lockstep
