// SPDX-License-Identifier: Apache-2.0
// Holds the rare paths of a room's rings, and sleep.
#include "collectives/node/room.hpp"

#include <algorithm>
#include <utility>

#include "collectives/node/tuning_record.hpp"

namespace lockstep::node {

void StepRing::begin_at(StepNumber step) {
  for (StepNumber back = 0; back < line_ring; ++back)
    memory_.line(memory_.index(), step - back).stamp.store(std::uint64_t{step} << 32U, std::memory_order_release);
  last_ = reached_by_all_ = step;
}

// Each look fetches a line from another core. So it asks first for more steps than needed; members that keep up have
// them.
bool StepRing::have_all_reached(StepNumber step) {
  const auto all_have = [&](StepNumber published) {
    for (int member = 0; member < memory_.size(); ++member) {
      if (member != memory_.index() && !has_published(member, published)) return false;
    }
    reached_by_all_ = published;
    return true;
  };
  const StepNumber more = step + line_ring / 2;
  return (reaches(last_, more) && all_have(more)) || all_have(step);
}

void RoomSleeper::sleep(std::int64_t nanoseconds) {
  constexpr std::int64_t soon = 50'000;
  header_.sleep(std::exchange(is_next_sleep_short_, false) ? std::min(nanoseconds, soon) : nanoseconds);
}

void RoomThresholds::give_up(const TuningField& field, std::size_t value) {
  tuning_.*field.value = value;
  ++confidence_.given_up;
  if (!key_.empty()) note_given_up(key_, field, value);
}

}  // namespace lockstep::node
