// SPDX-License-Identifier: Apache-2.0
// Holds what all transports share: the errors of refused rounds and of a message whose length differs from its
// receive's, and two conversions.
#pragma once

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>

#include "topology/base/error.hpp"

namespace lockstep::round_rules {

// Returns the error of a round on a lane that has one under way.
Error lane_is_busy(int lane);
// Returns the error of a round on a transport that has been given up.
Error transport_is_given_up();

// Returns the sentence that a message has another length than its receive, and the error with such a sentence.
std::string length_mismatch(int sender, std::uint64_t sent, int receiver, std::uint64_t wanted);
Error mismatch(const std::string& sentence);

// Returns the rank of this member in a new transport of `members`, which are ranks of the old one.
int rank_among(std::span<const int> members, int rank);

// Converts the time of Transport::sleep().
inline timespec to_timespec(std::int64_t nanoseconds) {
  constexpr std::int64_t second = 1'000'000'000;
  return {static_cast<std::time_t>(nanoseconds / second), static_cast<long>(nanoseconds % second)};
}

}  // namespace lockstep::round_rules
