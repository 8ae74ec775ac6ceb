// SPDX-License-Identifier: Apache-2.0
// Writes the sentences for members that differ or do not come. All functions are pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/control_message.hpp"
#include "topology/base/index_set.hpp"
#include "topology/members.hpp"

namespace lockstep {

// Holds the knowledge about the other members, by rank.
struct MemberReports {
  std::span<const std::optional<AnswerMessage>> answers;
  // Holds for each rank the last call that it had started when it left; nothing if it has not left.
  std::span<const std::optional<std::uint64_t>> left;
};

// Returns "rank 3" or "ranks 3-5,7".
std::string ranks_text(const IndexSet& ranks);

// Returns, grouped, how far the ranks of `asked` are with a call. Example: "ranks 0-2 are waiting in it; rank 3 last
// finished call 11 and is in none; rank 5 does not answer: ...". Ranks that wait in the call, or have finished it, are
// not missing, so they appear as numbers alone.
std::string progress_report(const MemberReports& reports, const IndexSet& asked, const Members& members = {});
// Returns the same for a point-to-point message, which has no number that members agree on.
std::string progress_report_of_message(const MemberReports& reports, const IndexSet& asked,
                                       const Members& members = {});

// Advises on calls that change one variable in different ways.
inline constexpr std::string_view same_change_remedy =
    "let all replicas call the same function of it (assign, assign_add, scatter_max, ...)";

// Returns an Error mismatch that names both calls and both members.
Error different_calls(std::string_view name, int peer, const CallDescription& theirs, int me,
                      const CallDescription& mine, const Members& members = {});

}  // namespace lockstep
