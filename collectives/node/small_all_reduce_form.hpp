// SPDX-License-Identifier: Apache-2.0
// Implements the form for the smallest calls: an all_reduce with data that fit beside the step's number in a line. It
// takes one step. Each member combines for itself; if that was measured to be faster, the last member to arrive
// combines for all.
#pragma once

#include <cstring>

#include "collectives/node/in_node_form.hpp"

namespace lockstep::node {

// Copies a few bytes inline, without a function call.
inline void copy_small(std::byte* to, const std::byte* from, std::size_t bytes) {
  std::size_t at = 0;
  for (; at + 16 <= bytes; at += 16) std::memcpy(to + at, from + at, 16);
  if (at + 8 <= bytes) {
    std::memcpy(to + at, from + at, 8);
    at += 8;
  }
  for (; at < bytes; ++at) to[at] = from[at];
}

// Runs such calls. Programs repeat them most often, so repeat() has no virtual call and no loop over phases.
class SmallAllReduceForm final : public InNodeForm {
 public:
  // True if this member can do the call in this form. Others may do it as a OnePhaseForm, which uses lines as well.
  static bool fits(const CallContext& call) {
    // A user's function may need better alignment than a place beside a number has.
    return call.collective() == Collective::all_reduce && call.common().bytes <= Line::room &&
           call.call->user.apply == nullptr && call.call->pieces == nullptr && !call.devices.has_any();
  }
  void begin(CallContext& call) {
    bytes_ = call.common().bytes;
    is_combined_by_last_ = bytes_ < call.tuning.each_combines_from && call.members() > 1;
    set_needs(InputNeed::all);
    begin_steps(call, call.room->ring().last() + 1, 0);
  }
  // Runs the call once more with the context's new values. Returns true if it is done.
  bool repeat(PollLimits& poll_limits) {
    Room& room = *call().room;
    begin_steps(call(), room.ring().last() + 1, 0);
    if (!room.ring().is_free(StepStorage::line)) return false;
    copy_small(room.ring().my_next_line().payload, call().input, bytes_);
    publish();
    if (is_combined_by_last_ && room.results().arrives_last(first())) combine_for_all();
    if (!SmallAllReduceForm::has_collected(poll_limits)) return false;
    SmallAllReduceForm::end_step();
    return true;
  }
  IndexSet missing() const override;

 private:
  bool fill() override {
    copy_small(call().room->ring().my_next_line().payload, call().input, bytes_);
    return true;
  }
  void after_publishing() override {
    if (is_combined_by_last_ && call().room->results().arrives_last(first())) combine_for_all();
  }
  bool has_collected(PollLimits& poll_limits) override;
  void end_step() override {
    const CallContext& all = call();
    if (is_combined_by_last_) {
      copy_small(all.output, all.room->results().line(first()).payload, bytes_);
    } else {
      for (int member = 0; member < all.members(); ++member)
        all.sources[member] = all.room->ring().line(member, first()).payload;
      all.sources[all.me()] = all.input;
      all.combiner->combine(all.output, all.sources, all.members(), all.spec().count);
    }
    next_step();
    set_phase(FormPhase::done);
  }
  void combine_for_all();

  std::size_t bytes_ = 0;
  bool is_combined_by_last_ = false;
};

// Returns the members that can be missing if all have published their step, and there is no result: the last to arrive
// is late, or a member that has not counted itself in.
IndexSet missing_to_combine(Room& room, StepNumber step);

}  // namespace lockstep::node
