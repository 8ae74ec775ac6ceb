// SPDX-License-Identifier: Apache-2.0
// Makes events and gives them back, and lets go of those of members that have died.
#include "collectives/node/member_gpus.hpp"

#include <new>
#include <utility>

#include "topology/base/keep.hpp"

namespace lockstep::node {

MemberGpus::~MemberGpus() {
  if (events_ != nullptr) give_back_events();
  memory_.header_of(memory_.index()).has_left.store(1, std::memory_order_release);
}

// The events are free once all members have queued their waits, have left, or have died.
void MemberGpus::give_back_events() noexcept {
  try {
    const auto is_done_with = [memory = memory_, reader = reader_, step = ordered_,
                               could_be_behind = has_ordered_ && !are_events_shared_,
                               are_known = has_ordered_ || are_events_shared_] {
      for (int member = 0; are_known && member < memory.size(); ++member) {
        const RoomMemberHeader& theirs = memory.header_of(member);
        const bool is_behind = could_be_behind && reaches(theirs.waits_queued_to.load(std::memory_order_acquire), step);
        if (member != memory.index() && !is_behind && theirs.has_left.load(std::memory_order_acquire) == 0 &&
            !reader.is_gone(member))
          return false;
      }
      return true;
    };
    if (is_done_with())
      events_->give_back();
    else
      events_->give_back_when(is_done_with);
  } catch (const std::bad_alloc&) {
    return;  // no other member has them then
  }
}

GpuEvents& MemberGpus::events() {
  if (events_ == nullptr) {
    events_ = std::make_unique<GpuEvents>(*gpu::backend());
    if (shared_) shared_->mappings().set_events(*events_);
  }
  return *events_;
}

void MemberGpus::note_queued_waits(StepNumber step) {
  ordered_ = step;
  has_ordered_ = true;
  are_events_shared_ = false;
  memory_.header_of(memory_.index()).waits_queued_to.store(step, std::memory_order_release);
}

void MemberGpus::release_waits_for_dead() {
  if (shared_ == nullptr) return;
  for (int member = 0; member < memory_.size(); ++member) {
    if (member != memory_.index() && reader_.is_gone(member)) shared_->release_waits_for(member);
  }
}

void MemberGpus::keep_forever() {
  release_waits_for_dead();
  lockstep::keep_forever(std::shared_ptr<Gpus>(std::move(shared_)));
  lockstep::keep_forever(std::shared_ptr<GpuEvents>(std::move(events_)));
}

}  // namespace lockstep::node
