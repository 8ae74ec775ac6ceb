// SPDX-License-Identifier: Apache-2.0
// Holds the rules that all kinds of Exchange share: when a wait warns, which members are missing, and the sentences
// that errors and warnings say.
#pragma once

#include <string>
#include <string_view>

#include "topology/base/duration.hpp"
#include "topology/base/error.hpp"
#include "topology/base/index_set.hpp"
#include "topology/exchange.hpp"

namespace lockstep::exchange_rules {

// Are the remedies of a mismatch, of a stall, and of a failure of another member.
inline constexpr std::string_view mismatch_remedy = "make the same calls in the same order on all members";
inline constexpr std::string_view stall_remedy = "run `lockstep stat` on their hosts; LOCKSTEP_TIMEOUT sets the limit";
inline constexpr std::string_view member_remedy = "see that rank's own error";
inline constexpr std::string_view process_remedy = "see that process's own error";

// True if a wait warns before its limit.
inline bool warns_first(const WaitLimits& wait_limits) {
  return wait_limits.warn > Duration{} && (wait_limits.limit == Duration{} || wait_limits.warn < wait_limits.limit);
}

// Returns the ranks below `size` for which `has_come` is false.
template <class HasCome>
IndexSet missing_ranks(int size, const HasCome& has_come) {
  IndexSet missing;
  for (int rank = 0; rank < size; ++rank) {
    if (!has_come(rank)) missing.insert(rank);
  }
  return missing;
}

// Returns the sentence that these ranks did not come to a call. `members` is their kind, such as "threads".
std::string absence(std::string_view what, std::size_t size, std::string_view members, const IndexSet& missing);
// Returns the sentence of a warning; `absence` says where the members are missing.
std::string stall_warning(Duration waited, std::string_view absence);
// Returns the sentence of an error at the limit, and the error.
std::string stall_sentence(Duration waited, std::string_view absence);
Error stall(Duration waited, std::string_view absence);

// Returns the sentence that two ranks are in different calls, and the error.
std::string mismatch_sentence(int rank, std::string_view what, int other, std::string_view their_what);
Error mismatch(int rank, std::string_view what, int other, std::string_view their_what);

}  // namespace lockstep::exchange_rules
