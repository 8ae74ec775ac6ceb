// SPDX-License-Identifier: Apache-2.0
// Implements the runner: queues of lanes and of the room, rounds, and the local steps between them.
#include "collectives/engine/runner.hpp"

#include <algorithm>
#include <utility>

#include "collectives/engine/binding.hpp"
#include "collectives/engine/flow_copies.hpp"
#include "topology/base/error.hpp"
#include "topology/base/keep.hpp"

namespace lockstep {
namespace {

// Reduces two buffers by the user's function or by a kernel.
void reduce(const Call& call, void* target, const void* left, const void* right, std::size_t count) {
  if (call.user.apply != nullptr) {
    call.user.apply(call.user.state.data(), target, left, right, count);
  } else if (call.kernel != nullptr) {
    call.kernel->two(target, left, right, count);
  } else {
    throw Error(Code::internal, text("no reduction is known for ", to_string(call.plan->spec.op), " of ",
                                     to_string(call.plan->spec.type)));
  }
}

// Executes one local step of a round.
void do_local(const LocalStep& local, int lap, const BoundSlices& bound, const Call& call) {
  const Slice target = local.target.at(lap);
  if (target.count == 0) return;
  if (local.kind == LocalStepKind::round) {
    wire_kernel(call.plan->wire).round(bound.write(target), target.count);
    return;
  }
  const std::byte* left = bound.read(local.left.at(lap));
  if (local.kind == LocalStepKind::reduce) {
    reduce(call, bound.write(target), left, bound.read(local.right.at(lap)), target.count);
  } else if (bound.write(target) != left) {
    call.copy(bound.write(target), left, target.count * bound.bytes);
  }
}

bool plan_flows(const Operation& operation) { return operation.plan().flow.plan != nullptr; }

// Returns true in the last lap of the part's last round.
bool is_last_round(const Operation& operation, const OperationPart& part) {
  const auto& rounds = operation.plan().schedule_of(part.segment).rounds;
  return part.segment + static_cast<int>(operation.parts.size()) >= operation.plan().segments &&
         part.round + 1 == rounds.size() && part.lap + 1 >= rounds[part.round].times;
}

}  // namespace

Runner::Runner(Transport& transport, node::Room* room, const node::PollLimits& poll_limits)
    : transport_(transport),
      room_(room),
      poll_limits_(poll_limits),
      trial_(room),
      queues_(static_cast<std::size_t>(transport.lanes())) {
  if (room != nullptr) slot_pages_.emplace(room->memory());
}

// Gives the operation its turns: in the node's memory, or in a lane for each part. Turns are given in the order of
// starts, so all members have the same.
void Runner::enlist(Operation& operation) {
  const Plan& plan = operation.plan();
  if (plan.in_node) {
    if (room_ == nullptr) throw Error(Code::internal, "a plan for the node's memory, which is not shared here");
    operation.parts.clear();
    operation.parts_left = 0;
    operation.is_begun = false;
    operation.first_room_turn = in_node_.next++;
    operation.address_queries = room_->buffers().queries();
    return;
  }
  const int width = operation.is_message() ? 1 : std::max(1, std::min({plan.depth, plan.segments, transport_.lanes()}));
  operation.parts.resize(static_cast<std::size_t>(width));
  operation.parts_left = operation.parts.size();
  operation.is_begun = false;
  operation.part_in_room = nullptr;
  if (plan.node_round_count() > 0) {
    if (room_ == nullptr) throw Error(Code::internal, "a plan for a node's memory, which is not shared here");
    operation.first_room_turn = in_node_.next;
    in_node_.next += plan.node_round_count() * static_cast<std::uint64_t>(plan.segments);
    operation.address_queries = room_->buffers().queries();
    operation.node_call = operation.call;
  }
  if (plan.flow.plan != nullptr) {
    if (operation.flow == nullptr) operation.flow = std::make_unique<node::SegmentFlow>();
    operation.flow->prepare();
  }
  for (int i = 0; i < width; ++i) {
    OperationPart& part = operation.parts[static_cast<std::size_t>(i)];
    part = OperationPart{.segment = i};
    if (!operation.is_message()) {
      part.lane = next_lane_;
      next_lane_ = (next_lane_ + 1) % transport_.lanes();
    }
    part.turn = queue_of(operation, part).next++;
  }
  allocate_workspaces(operation);
}

// Provides the memory of all parts now, not when a part happens to be admitted. So allocation does not depend on
// timing.
void Runner::allocate_workspaces(Operation& operation) {
  const Plan& plan = operation.plan();
  const std::size_t scratch = std::max(plan.schedule.scratch, plan.last.scratch) * plan.spec.element_bytes;
  if (operation.workspaces.size() < operation.parts.size()) operation.workspaces.resize(operation.parts.size());
  for (std::size_t i = 0; i < operation.parts.size(); ++i) {
    Workspace& workspace = operation.workspaces[i];
    workspace.scratch.at_least(scratch);
    if (plan.wire != WireFormat::as_is)
      workspace.wire_elements.at_least((plan.narrow_sends + plan.narrow_receives) * narrow_bytes);
    workspace.sends.reserve(operation.most_messages);
    workspace.receives.reserve(operation.most_messages);
    operation.parts[i].workspace = &workspace;
  }
}

// Runs all parts that have their turn. The operation is over when the last part is done and its results are on the GPU.
bool Runner::advance(Operation& operation) {
  if (operation.is_agreeing()) return false;
  if (operation.plan().in_node) return advance_in_node(operation);
  bool moved = operation.device_copies.is_on() && operation.device_copies.advance();
  for (OperationPart& part : operation.parts) {
    if (part.stage == PartStage::done) continue;
    if (part.stage == PartStage::queued && !acquire_lane(operation, part)) continue;
    moved |= run(operation, part);
  }
  if (operation.is_begun && plan_flows(operation)) {
    moved |= advance_flow(operation);
    if (!moved && operation.waits_in_flow() && operation.has_part_in(PartStage::posted))
      room_->sleeper().shorten_next_sleep();
    if (operation.parts_left == 0 && operation.flow->is_flowing()) return moved;
  }
  if (operation.parts_left == 0 && has_uploaded(operation)) complete(operation);
  return moved;
}

bool Runner::has_uploaded(Operation& operation) {
  if (!operation.device_copies.is_on()) return true;
  if (!operation.device_copies.has_uploaded()) return false;
  std::erase(device_copies_.operations, &operation);
  return true;
}

// Runs a call that needs no messages. Calls follow each other in the room, one at a time.
bool Runner::advance_in_node(Operation& operation) {
  if (in_node_.serving != operation.first_room_turn) return false;
  bool moved = false;
  if (!operation.is_begun) {
    begin(operation);
    in_room_ = &operation;
    begin_in_node(operation);
    moved = true;
  }
  moved |= operation.node_collective.advance({poll_limits_.spins, 0});
  if (!operation.node_collective.is_done()) return moved;
  if (trial_.is_timing()) trial_.end_call();
  in_room_ = nullptr;
  leave_room();
  complete(operation);
  return true;
}

// Begins a call in the room by the thresholds of its turn. A call that asked the trial begins again next time.
void Runner::begin_in_node(Operation& operation) {
  const std::uint64_t turn = operation.first_room_turn;
  operation.tuned_until = turn < trial_.next_turn() ? trial_.next_turn() : 0;
  operation.node_collective.begin(*room_, trial_.tuning_for(turn, operation.plan().spec), operation.call,
                                  operation.input, operation.call_tag, operation.address_queries);
}

void Runner::repeat(Operation& operation, node::PollLimits poll_limits) {
  operation.first_room_turn = in_node_.next++;
  operation.input = static_cast<const std::byte*>(operation.call.input);
  operation.output = static_cast<std::byte*>(operation.call.output);
  if (operation.first_room_turn < operation.tuned_until) {
    operation.node_collective.repeat(operation.input, operation.call_tag, room_->buffers().queries(), poll_limits);
  } else {
    operation.address_queries = room_->buffers().queries();
    begin_in_node(operation);
    operation.node_collective.advance(poll_limits);
    if (operation.node_collective.is_done() && trial_.is_timing()) trial_.end_call();
  }
  if (!operation.node_collective.is_done()) return;
  leave_room();
  complete(operation);
}

bool Runner::acquire_lane(Operation& operation, OperationPart& part) {
  if (queue_of(operation, part).serving != part.turn) return false;
  if (operation.is_message()) part.lane = transport_.lanes() + static_cast<int>(operation.slot);
  part.stage = PartStage::running;
  if (!operation.is_begun) begin(operation);
  return true;
}

// Prepares an operation before its first round: its addresses, its copies from a GPU, and its factor.
void Runner::begin(Operation& operation) {
  operation.is_begun = true;
  const Plan& plan = operation.plan();
  operation.input = static_cast<const std::byte*>(operation.call.input);
  operation.output = static_cast<std::byte*>(operation.call.output);
  if (operation.call.device_buffers) {
    device_copies_.operations.push_back(&operation);
    operation.device_copies.begin(device_copies_.streams, operation.call);
    if (operation.device_copies.downloads()) return;  // the pipeline multiplies each piece
  }
  if (plan.spec.op != ReduceOp::premul_sum || !reduces(plan.spec.collective) || plan.input_count == 0) return;
  if (operation.call.is_plain_sum) return;
  if (gpu::where(operation.input).on_device()) return;  // the work multiplies its copy in host memory
  // The output can hold the scaled input of an all_reduce, and of a call in place. With one member, and for the first
  // member of a scan, a call in place leaves its input there without adding to it.
  const bool is_in_its_place = operation.input == operation.output && plan.spec.collective != Collective::exscan;
  const bool fits = (plan.spec.collective == Collective::all_reduce || is_in_its_place) &&
                    plan.output_count >= plan.input_count && !gpu::where(operation.output).on_device();
  std::byte* scaled = fits ? operation.output : operation.scaled.at_least(plan.input_count * plan.spec.element_bytes);
  scale(plan.spec.type, scaled, operation.input, plan.input_count, operation.call.factor);
  operation.input = scaled;
}

// Advances a part as far as it goes without waiting.
bool Runner::run(Operation& operation, OperationPart& part) {
  bool moved = false;
  while (part.stage != PartStage::done) {
    if (part.stage == PartStage::posted) {
      if (!transport_.done(part.lane)) return moved;
      part.stage = PartStage::running;
      finish_round(operation, part);
    } else if (part.stage == PartStage::in_node) {
      if (plan_flows(operation) && operation.flow->state() != node::SegmentFlow::State::refused) return moved;
      if (!advance_node_step(operation, part)) return moved;
      if (part.stage == PartStage::in_node) return true;  // between pieces of a step, other segments go on
    } else if (operation.plan().schedule_of(part.segment).rounds.empty()) {
      finish(operation, part);
    } else if (operation.device_copies.is_on() &&
               !operation.device_copies.is_ready(round_of(operation, part), part.lap, first_of(operation, part))) {
      return moved;
    } else if (!round_of(operation, part).node_steps.empty()) {
      part.stage = PartStage::in_node;
      part.node_step = 0;
      part.copied = {};
    } else if (post(operation, part)) {
      part.stage = PartStage::posted;
    } else {
      finish_round(operation, part);
    }
    moved = true;
  }
  return moved;
}

// Returns the part's turn in the room. All members of a node use the room in one order. First come the first rounds of
// as many segments as are under way. Then the last round of one segment alternates with the first round of the next
// one. A schedule has two such rounds at most.
std::uint64_t Runner::room_turn_of(const Operation& operation, const OperationPart& part) {
  const auto segment = static_cast<std::uint64_t>(part.segment);
  const auto width = static_cast<std::uint64_t>(operation.parts.size());
  const auto segments = static_cast<std::uint64_t>(operation.plan().segments);
  std::uint64_t before = segment;
  if (operation.plan().node_round_count() == 2) {
    if (part.node_rounds == 0)
      before += segment < width ? 0 : segment - width + 1;
    else
      before += std::min(segments, segment + width);
  }
  return operation.first_room_turn + before;
}

void Runner::begin_node_step(Operation& operation, OperationPart& part) {
  const IntraNodeStep& node_step = round_of(operation, part).node_steps[part.node_step];
  const BoundSlices bound = bind(operation, part);
  operation.part_in_room = &part;
  operation.node_call.plan = operation.plan().node_plans_of(part.segment)[part.node_rounds][part.node_step];
  operation.node_call.input = node_step.from.count > 0 ? bound.read(node_step.from) : nullptr;
  operation.node_call.output = node_step.to.count > 0 ? bound.write(node_step.to) : nullptr;
  operation.node_collective.begin(*room_, room_->tuning(), operation.node_call,
                                  static_cast<const std::byte*>(operation.node_call.input), operation.call_tag,
                                  operation.address_queries);
}

// Advances the part's step in the room. Returns true if anything moved.
bool Runner::advance_node_step(Operation& operation, OperationPart& part) {
  if (operation.part_in_room != &part) {
    if (in_node_.serving != room_turn_of(operation, part)) return false;
    begin_node_step(operation, part);
    operation.node_collective.advance({poll_limits_.spins, 0});
  } else if (!operation.node_collective.advance({poll_limits_.spins, 0})) {
    return false;
  }
  if (!operation.node_collective.is_done()) return true;
  if (++part.node_step < round_of(operation, part).node_steps.size()) {
    begin_node_step(operation, part);
    return true;
  }
  operation.part_in_room = nullptr;
  leave_room();
  finish_node_round(operation, part);
  return true;
}

void Runner::finish_node_round(Operation& operation, OperationPart& part) {
  ++part.node_rounds;
  part.stage = PartStage::running;
  finish_round(operation, part);
}

// Begins the flow of a call at its turn in the room, copies one piece, and ends the flow behind the last segment.
// Messages go on between pieces. Returns true if anything moved.
bool Runner::advance_flow(Operation& operation) {
  node::SegmentFlow& flow = *operation.flow;
  const Plan& plan = operation.plan();
  if (flow.state() == node::SegmentFlow::State::waiting) {
    if (in_node_.serving != operation.first_room_turn) return false;
    operation.node_call.plan = plan.flow.plan;
    operation.node_call.output = operation.output;
    // In place, the source's output has all data from the beginning.
    const bool has_all_data = plan.flow.source != room_->index() || operation.input == operation.output;
    const bool is_reachable =
        has_all_data && !operation.device_copies.is_on() && !gpu::where(operation.output).on_device();
    flow.begin(*room_, operation.node_call, is_reachable, operation.call_tag, operation.address_queries);
    if (flow.state() == node::SegmentFlow::State::refused) return true;
  }
  if (!flow.is_flowing()) {
    const bool moved = flow.advance({poll_limits_.spins, 0});
    if (flow.is_flowing() && plan.flow.source == room_->index()) flow.set_ready(plan.segments);
    return moved;
  }
  if (operation.parts_left == 0) return end_flow(operation);
  announce_ready(operation);
  const CopiedPiece piece = copy_next_piece(operation, *room_);
  if (piece.ends_round_of != nullptr) finish_node_round(operation, *piece.ends_round_of);
  return piece.moved;
}

// Leaves the room, with the turns of all steps that the flow was instead of.
bool Runner::end_flow(Operation& operation) {
  operation.flow->end();
  const bool moved = operation.flow->advance({poll_limits_.spins, 0});
  if (!operation.flow->has_ended()) return moved;
  in_node_.serving += operation.plan().node_round_count() * static_cast<std::uint64_t>(operation.plan().segments);
  slot_pages_->note_finished(room_->ring().last());
  return true;
}

// Posts the messages of the round. Returns false if it has none.
bool Runner::post(Operation& operation, OperationPart& part) {
  const Round& round = round_of(operation, part);
  const BoundSlices bound = bind(operation, part);
  const Plan& plan = operation.plan();
  auto& sends = part.workspace->sends;
  auto& receives = part.workspace->receives;
  const bool all_messages = has_own_counts(plan.spec.collective);
  sends.clear();
  receives.clear();
  std::byte* const packed = part.workspace->wire_elements.at_least(0);
  each_message(round.sends, part.lap, packed, [&](const Message& message, const Slice& slice, std::byte* place) {
    if (slice.count == 0 && !all_messages) return;
    if (place != nullptr) wire_kernel(plan.wire).narrow(place, bound.read(slice), slice.count);
    sends.push_back({message.peer_at(part.lap), place != nullptr ? place : bound.read(slice),
                     slice.count * (place != nullptr ? narrow_bytes : bound.bytes)});
  });
  each_message(round.receives, part.lap, packed + plan.narrow_sends * narrow_bytes,
               [&](const Message& message, const Slice& slice, std::byte* place) {
                 if (slice.count == 0 && !all_messages) return;
                 receives.push_back({message.peer_at(part.lap), place != nullptr ? place : bound.write(slice),
                                     slice.count * (place != nullptr ? narrow_bytes : bound.bytes)});
               });
  const bool any = !sends.empty() || !receives.empty();
  if (any) transport_.post({part.lane, operation.call_tag, operation.is_message()}, sends, receives);
  if (operation.is_message() && is_last_round(operation, part)) ++messages_.serving;
  return any;
}

// Executes the local steps of a round after its messages, and moves the part to the next lap or round.
void Runner::finish_round(Operation& operation, OperationPart& part) {
  const Round& round = round_of(operation, part);
  const Plan& plan = operation.plan();
  if (plan.wire != WireFormat::as_is) {
    const BoundSlices bound = bind(operation, part);
    each_message(round.receives, part.lap, part.workspace->wire_elements.at_least(0) + plan.narrow_sends * narrow_bytes,
                 [&](const Message&, const Slice& slice, const std::byte* place) {
                   if (place != nullptr) wire_kernel(plan.wire).widen(bound.write(slice), place, slice.count);
                 });
  }
  if (!round.locals.empty()) {
    const BoundSlices bound = bind(operation, part);
    for (const LocalStep& local : round.locals) do_local(local, part.lap, bound, operation.call);
  }
  if (operation.device_copies.is_on()) operation.device_copies.done(round, part.lap, first_of(operation, part));
  if (++part.lap < round.times) return;
  part.lap = 0;
  if (++part.round == operation.plan().schedule_of(part.segment).rounds.size()) finish(operation, part);
}

// Ends the part's segment, and the part itself after its last segment.
void Runner::finish(Operation& operation, OperationPart& part) {
  part.round = 0;
  part.node_rounds = 0;
  part.segment += static_cast<int>(operation.parts.size());
  if (part.segment < operation.plan().segments) return;
  if (operation.is_message()) {
    if (messages_.serving == part.turn) ++messages_.serving;  // the message had no round at all
  } else {
    ++queue_of(operation, part).serving;
  }
  part.stage = PartStage::done;
  --operation.parts_left;
}

void Runner::complete(Operation& operation) {
  const Plan& plan = operation.plan();
  const bool divides = plan.spec.op == ReduceOp::avg && reduces(plan.spec.collective) && plan.result.count > 0 &&
                       !operation.device_copies.uploads();
  operation.device_copies.end();
  if (divides && !plan.in_node && !operation.call.is_plain_sum) {  // calls in the node's memory have divided already
    std::byte* result = operation.output + plan.result.offset * plan.spec.element_bytes;
    divide(plan.spec.type, result, result, plan.result.count, plan.size);
  }
  operation.state = OperationState::finished;
}

bool Runner::abandon() {
  const bool device_copies_ended = abandon_device_copies();
  if (room_ == nullptr) return device_copies_ended;
  const bool copies_ended = in_room_ == nullptr || std::exchange(in_room_, nullptr)->node_collective.abandon();
  return room_->access().abandon() && copies_ended && device_copies_ended;
}

bool Runner::abandon_device_copies() noexcept {
  bool all_ended = true;
  for (Operation* const each : device_copies_.operations) all_ended = each->device_copies.abandon() && all_ended;
  device_copies_.operations.clear();
  if (all_ended) return true;
  for (const auto& stream : device_copies_.streams.streams()) keep_forever(stream);
  return false;
}

}  // namespace lockstep
