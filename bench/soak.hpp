// SPDX-License-Identifier: Apache-2.0
// Runs random work on a communicator and verifies all of it: collectives, sizes, types, operations, roots and
// sub-communicators. Several calls are in flight, and each rank waits for them in another order. A seed and the number
// of a round repeat it.
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
  std::optional<std::uint64_t> rounds;  // instead of a time
  std::uint64_t seed = 1;
  std::uint64_t first_round = 0;
  std::uint64_t most_bytes = std::uint64_t{1} << 20U;  // of one operation
  // Lets a test make a result wrong, to prove that the soak sees it. It is called with each result before the check.
  std::function<void(std::uint64_t round, Buffers& result)> spoil = {};
};

struct SoakResult {
  std::uint64_t rounds = 0;
  std::uint64_t operations = 0;
  std::uint64_t bytes = 0;  // of this member's data
  bool interrupted = false;
  std::string wrong;  // the wrong element, its place and its round; empty: all is right
};

// Runs the soak. All members call it and have the same `wrong`. `progress` is called after each round.
SoakResult soak(Communicator& world, const SoakOptions& options,
                const std::function<void(const SoakResult&)>& progress);

}  // namespace lockstep::bench
