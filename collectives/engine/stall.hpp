// SPDX-License-Identifier: Apache-2.0
// What is said when members differ or do not come: pure functions from what is known to sentences.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "collectives/engine/words.hpp"
#include "topology/base/index_set.hpp"

namespace lockstep {

// What is known of the other members, by rank.
struct Roll {
  std::span<const std::optional<Answer>> answers;
  std::span<const std::optional<std::uint64_t>> left;  // the last call that it had started when it left
};

// "rank 3", "ranks 3-5,7"
std::string ranks_text(const IndexSet& ranks);

// Who of `asked` stands where with call `number`, grouped: "ranks 0-2 are in it too; rank 3 last finished call 11
// and is in none; rank 5 does not answer: ...".
std::string standings(const Roll& roll, const IndexSet& asked);
// The same for an exchange, which has no number that members agree on.
std::string standings_of_exchange(const Roll& roll, const IndexSet& asked);

// Error mismatch, in which both sides are named.
Error different_calls(std::string_view name, int peer, const CallWord& theirs, int me, const CallWord& mine);

}  // namespace lockstep
