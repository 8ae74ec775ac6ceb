// SPDX-License-Identifier: Apache-2.0
// Composes the errors of rounds.
#include "collectives/engine/round_rules.hpp"

#include <algorithm>

#include "topology/base/text.hpp"

namespace lockstep::round_rules {

Error lane_is_busy(int lane) { return Error(Code::internal, text("lane ", lane, " has a round under way")); }

Error transport_is_given_up() {
  return Error(Code::internal, "messages were posted on a transport that has been given up");
}

std::string length_mismatch(int sender, std::uint64_t sent, int receiver, std::uint64_t wanted) {
  return text("rank ", sender, " sent ", sent, " bytes to rank ", receiver, ", which receives ", wanted);
}

Error mismatch(const std::string& sentence) {
  return Error(Code::mismatch, sentence, "let both sides of a message have the same count and type");
}

int rank_among(std::span<const int> members, int rank) {
  return static_cast<int>(std::ranges::find(members, rank) - members.begin());
}

}  // namespace lockstep::round_rules
