// SPDX-License-Identifier: Apache-2.0
// When each message of a collective is sent, if all members begin together and every round takes one step: for
// pictures of who sends what to whom.
#pragma once

#include <span>
#include <vector>

#include "collectives/schedule.hpp"

namespace lockstep::command {

struct StepMessage {
  int step;  // in which it is sent, from 1
  int from;
  int to;
  Slice slice;  // of the sender
  bool operator==(const StepMessage&) const = default;
};

// By step, then by sender. One schedule per member. At most `most` messages, the first ones.
std::vector<StepMessage> step_messages(std::span<const Schedule> schedules, std::size_t most);

}  // namespace lockstep::command
