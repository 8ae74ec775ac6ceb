// SPDX-License-Identifier: Apache-2.0
// Random work for a communicator, all of it verified: collectives, sizes, types, operations, roots, sub-communicators,
// several in flight at once and waited for in another order by everybody. A seed and the number of a round repeat it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "bench/buffers.hpp"
#include "collectives/communicator/communicator.hpp"

namespace lockstep::bench {

struct SoakOptions {
  double seconds = 60;
  std::optional<std::uint64_t> rounds;  // so many instead of a time
  std::uint64_t seed = 1;
  std::uint64_t first_round = 0;
  std::uint64_t most_bytes = std::uint64_t{1} << 20U;  // of one operation
  // Whether a soak sees what is wrong: called with each result before it is looked at.
  std::function<void(std::uint64_t round, Buffers& result)> spoil = {};
};

struct SoakResult {
  std::uint64_t rounds = 0;
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;  // of this member's data
  bool interrupted = false;
  std::string wrong;  // what, where and in which round; empty: all is right
};

// All members call it and have the same `wrong`. `progress` is called after each round.
SoakResult soak(Communicator& world, const SoakOptions& options,
                const std::function<void(const SoakResult&)>& progress);

}  // namespace lockstep::bench
