// SPDX-License-Identifier: Apache-2.0
// Holds the rarer parts of small sums.
#include "collectives/node/small_all_reduce_form.hpp"

namespace lockstep::node {

bool SmallAllReduceForm::has_collected(PollLimits& poll_limits) {
  if (!is_combined_by_last_) return has_all_steps(poll_limits);
  Room& room = *call().room;
  if (!poll(poll_limits, [&] { return room.results().has_published_in(first(), call().call_tag); })) return false;
  room.ring().note_reached_by_all(first());
  return true;
}

// Combines for all members; all data, also mine, lie in lines. Does nothing if a member is in another call.
void SmallAllReduceForm::combine_for_all() {
  const CallContext& all = call();
  for (int member = 0; member < all.members(); ++member) {
    if (!all.room->ring().has_published_in(member, first(), all.call_tag)) return;
    all.sources[member] = all.room->ring().line(member, first()).payload;
  }
  all.combiner->combine(all.room->results().line(first()).payload, all.sources, all.members(), all.spec().count);
  all.room->results().publish(first(), all.call_tag);
}

IndexSet SmallAllReduceForm::missing() const {
  IndexSet all = InNodeForm::missing();
  if (all.empty() && is_combined_by_last_ && phase() == FormPhase::collecting)
    return missing_to_combine(*call().room, first());
  return all;
}

IndexSet missing_to_combine(Room& room, StepNumber step) {
  IndexSet all;
  const int leader = room.results().leader(step);
  if (leader >= 0 && leader != room.index()) all.insert(leader);
  for (int member = 0; leader < 0 && member < room.size(); ++member) {
    if (member != room.index()) all.insert(member);
  }
  return all;
}

}  // namespace lockstep::node
