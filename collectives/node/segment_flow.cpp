// SPDX-License-Identifier: Apache-2.0
// Begins and ends flows, and copies between members.
#include "collectives/node/segment_flow.hpp"

namespace lockstep::node {

void FlowEndForm::begin(CallContext& call, const InNodeForm& before) {
  is_complete_ = false;
  begin_steps(call, before.first(), before.step());
  set_steps(step() + 1);
  set_needs(InputNeed::all);
}

void FlowEndForm::end_step() {
  next_step();
  set_phase(FormPhase::done);
}

void SegmentFlow::begin(Room& room, const Call& call, bool is_reachable, std::uint32_t call_tag,
                        AddressQueries address_queries) {
  context_.set(room, room.tuning(), call);
  context_.input = is_reachable ? static_cast<const std::byte*>(call.output) : nullptr;
  context_.call_tag = call_tag;
  ready_ = 0;
  const bool reads_processes = may_read_processes(context_);
  if (!reads_processes && !asks_for_addresses(context_, address_queries)) {
    state_ = State::refused;
    return;
  }
  addresses_.begin(context_, peers_, nullptr, reads_processes);
  state_ = State::asking;
}

bool SegmentFlow::advance(PollLimits poll_limits) {
  if (state_ == State::asking) {
    const bool moved = addresses_.advance(poll_limits);
    if (!addresses_.is_done()) return moved;
    context_.room->gpus().set_events_shared(false);
    const bool are_reached = addresses_.outcome() == AddressOutcome::direct && !peers_.concerns_gpus;
    state_ = are_reached ? State::flowing : State::refused;
    if (are_reached) end_form_.begin(context_, addresses_);
    return true;
  }
  if (state_ != State::flowing || !end_form_.is_complete()) return false;
  const bool moved = end_form_.advance(poll_limits);
  if (end_form_.is_done()) state_ = State::ended;
  return moved || has_ended();
}

// The flow's first step marks the counter, so that nobody takes an earlier call's for this one's.
void SegmentFlow::set_ready(int segments) {
  if (segments <= ready_) return;
  ready_ = segments;
  const RoomMemory& memory = context_.room->memory();
  memory.header_of(context_.me())
      .segments_ready.store(std::uint64_t{end_form_.first()} << 32U | static_cast<std::uint32_t>(segments),
                            std::memory_order_release);
  memory.header().wake_all();
}

bool SegmentFlow::is_ready(int member, int segment) const {
  const std::uint64_t word = context_.room->memory().header_of(member).segments_ready.load(std::memory_order_acquire);
  return word >> 32U == end_form_.first() && static_cast<std::uint32_t>(word) > static_cast<std::uint32_t>(segment);
}

bool SegmentFlow::copy(int member, std::size_t offset, std::size_t bytes) {
  Room& room = *context_.room;
  const PeerAccess access(room.access());
  if (!access.is_open()) return false;
  const auto m = static_cast<std::size_t>(member);
  std::byte* const to = context_.output + offset;
  if (peers_.remote_inputs[m] == 0) {
    context_.write_output(to, peers_.inputs[m] + offset, bytes);
  } else {
    room.add_copied_bytes(bytes);
    room.buffers().reader().read(member, to, peers_.remote_inputs[m] + offset, bytes);
  }
  return true;
}

const InNodeForm* SegmentFlow::form_in_step() const {
  if (state_ == State::asking) return &addresses_;
  return state_ == State::flowing && end_form_.is_complete() ? &end_form_ : nullptr;
}

IndexSet SegmentFlow::missing() const {
  const InNodeForm* const form = form_in_step();
  return form == nullptr ? IndexSet() : form->missing();
}

IndexSet SegmentFlow::in_other_call() const {
  const InNodeForm* const form = form_in_step();
  return form == nullptr ? IndexSet() : form->in_other_call();
}

}  // namespace lockstep::node
