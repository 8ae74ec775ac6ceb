// SPDX-License-Identifier: Apache-2.0
// Communicators on threads for tests: a failed assertion names the rank and sets the others free.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "collectives/communicator/batch.hpp"
#include "collectives/communicator/cartesian.hpp"
#include "collectives/communicator/local.hpp"
#include "topology/base/text.hpp"

namespace lockstep::test {

inline constexpr WaitLimits short_limits = {std::chrono::seconds(10), std::chrono::seconds(60)};

// The same tests go by messages only where the variable says so, as it does for a program.
inline bool node_memory() {
  const char* value = std::getenv("LOCKSTEP_NODE_MEMORY");
  return value == nullptr || std::string_view(value) != "0";
}

inline void with_members(int size, const std::function<void(Communicator&)>& body, CommunicatorOptions options = {},
                         WaitLimits wait_limits = short_limits) {
  options.node_memory = options.node_memory && node_memory();
  const auto guarded = [&](Communicator& world) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, text("rank ", world.rank(), " of ", world.size()));
    body(world);
    if (testing::Test::HasFatalFailure()) throw std::runtime_error("an assertion failed");
  };
  try {
    run_members(size, guarded, std::move(options), wait_limits, Log(LogLevel::off));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "a rank ended with: " << error.what();
  }
}

}  // namespace lockstep::test
