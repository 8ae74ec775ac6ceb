// SPDX-License-Identifier: Apache-2.0
// What is said when members differ or do not come: pure functions from what is known to sentences.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/control_message.hpp"
#include "topology/base/index_set.hpp"
#include "topology/members.hpp"

namespace lockstep {

// What is known of the other members, by rank.
struct MemberReports {
  std::span<const std::optional<AnswerMessage>> answers;
  std::span<const std::optional<std::uint64_t>> left;  // the last call that it had started when it left
};

// "rank 3", "ranks 3-5,7"
std::string ranks_text(const IndexSet& ranks);

// Who of `asked` stands where with call `number`, grouped: "ranks 0-2 are in it too; rank 3 last finished call 11
// and is in none; rank 5 does not answer: ...".
// Ranks that wait in it, or finished it, are not missing, so they are numbers alone.
std::string standings(const MemberReports& reports, const IndexSet& asked, const Members& members = {});
// The same for an exchange, which has no number that members agree on.
std::string standings_of_exchange(const MemberReports& reports, const IndexSet& asked, const Members& members = {});

// How to mend calls of one variable that change it in different ways.
inline constexpr std::string_view same_change_remedy =
    "let all replicas call the same function of it (assign, assign_add, scatter_max, ...)";

// Error mismatch, in which both sides are named.
Error different_calls(std::string_view name, int peer, const CallDescription& theirs, int me,
                      const CallDescription& mine, const Members& members = {});

}  // namespace lockstep
