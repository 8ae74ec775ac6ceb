// SPDX-License-Identifier: Apache-2.0
// Computes the step in which each message of a collective is sent, if all members begin together and every round takes
// one step. Pictures of the messages need it.
#pragma once

#include <span>
#include <vector>

#include "collectives/schedule.hpp"

namespace lockstep::command {

// Holds one message.
struct StepMessage {
  int step;  // the step in which it is sent, from 1
  int from;
  int to;
  Slice slice;  // in the sender's buffers
  bool operator==(const StepMessage&) const = default;
};

// Returns at most `most` messages, the first ones, by step and then by sender. `schedules` has one schedule for each
// member.
std::vector<StepMessage> step_messages(std::span<const Schedule> schedules, std::size_t most);

}  // namespace lockstep::command
