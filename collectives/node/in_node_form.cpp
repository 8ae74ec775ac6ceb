// SPDX-License-Identifier: Apache-2.0
// Runs the phases of steps.
#include "collectives/node/in_node_form.hpp"

#include <utility>

namespace lockstep::node {

bool InNodeForm::advance(PollLimits& poll_limits) {
  bool moved = false;
  while (phase_ != FormPhase::done) {
    if (phase_ == FormPhase::filling) {
      if (!call_->room->ring().is_free(storage_)) return moved;
      if (!fill()) return std::exchange(has_worked_, false) || moved;
      phase_ = FormPhase::arriving;
    } else if (phase_ == FormPhase::arriving) {
      if (!is_filled()) return moved;
      publish();
      after_publishing();
    } else if (phase_ == FormPhase::collecting) {
      if (!has_collected(poll_limits)) {
        while_waiting();
        return std::exchange(has_moved_, false) || moved;
      }
      end_step();
    } else {
      if (!has_ended()) return moved;
      phase_ = FormPhase::done;
    }
    moved = true;
  }
  return moved;
}

IndexSet InNodeForm::missing() const {
  IndexSet all;
  const StepRing& ring = call_->room->ring();
  for (int member = 0; member < call_->members(); ++member) {
    if (member == call_->me()) continue;
    const bool late = phase_ == FormPhase::collecting && needs(member) &&
                      !ring.has_published_in(member, at_step(step_), call_->call_tag);
    const bool slow = phase_ == FormPhase::filling && ring.is_behind(member, storage_);
    if (late || slow) all.insert(member);
  }
  return all;
}

IndexSet InNodeForm::in_other_call() const {
  IndexSet all;
  const StepRing& ring = call_->room->ring();
  for (int member = 0; phase_ == FormPhase::collecting && member < call_->members(); ++member) {
    if (needs(member) && ring.has_published_in_other_call(member, at_step(step_), call_->call_tag)) all.insert(member);
  }
  return all;
}

}  // namespace lockstep::node
