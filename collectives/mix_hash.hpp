// SPDX-License-Identifier: Apache-2.0
// Mixes numbers into hashes: of calls, of plans, and of members' votes.
#pragma once

#include <cstdint>

namespace lockstep {

// Returns the hash with one more value mixed in; the order of values matters.
constexpr std::uint64_t mix_hash(std::uint64_t hash, std::uint64_t value) {
  hash = (hash ^ value) * 0xff51afd7ed558ccdU;
  return hash ^ hash >> 33U;
}

}  // namespace lockstep
