// SPDX-License-Identifier: Apache-2.0
// Damages right schedules, as a programmer's mistake would, to see whether the proof notices.
#pragma once

#include <string_view>
#include <vector>

#include "tests/collectives/execute.hpp"

namespace lockstep::test {

enum class Damage : std::uint8_t {
  drop_send,
  drop_receive,
  drop_message,  // both sides of it
  duplicate_send,
  duplicate_message,
  duplicate_local,
  drop_local,
  shift_message,  // one side of it by one element
  shift_both,
  shift_operand,
  shrink_message,
  shrink_both,
  shrink_local,
  swap_peers,        // of two messages of a round
  swap_messages,     // two of a member, with their peers
  swap_rounds,       // of one member
  merge_rounds,      // two rounds happen at once
  change_kind,       // copy or reduce
  swap_operands,     // of a reduce
  change_operand,    // takes what another local has
  change_space,      // of a message or of an operand
  advance_local,     // to the round before
  extra_message,     // into the place of another, before it, with other data
  copy_overlapping,  // what was received, by one element, and back
  write_input,       // in the end
  change_near,       // what a member does in its node
  change_laps,       // a repeated round is done once more or less often
};
inline constexpr int damage_count = 27;
std::string_view to_string(Damage damage);

// Damages one place, chosen by chance. The schedules are written out, but for change_laps. False: there is no such
// place, and they may be in any state.
bool do_damage(std::vector<Schedule>& schedules, Damage damage, Random& random);

}  // namespace lockstep::test
