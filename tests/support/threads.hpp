// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process, for tests: a failed assertion on one rank names the rank and sets
// the others free.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <functional>

#include "topology/base/text.hpp"
#include "topology/local_exchange.hpp"

namespace lockstep::test {

inline void on_threads(int size, const std::function<void(Exchange&)>& body,
                       WaitLimits wait_limits = {std::chrono::seconds(5), std::chrono::seconds(60)}) {
  const auto guarded = [&](Exchange& exchange) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, text("rank ", exchange.rank(), " of ", exchange.size()));
    body(exchange);
    if (testing::Test::HasFatalFailure()) exchange.fail("an assertion failed");
  };
  try {
    run_local(size, guarded, wait_limits, Log(LogLevel::error));
  } catch (const std::exception& error) {
    ADD_FAILURE() << "a rank ended with: " << error.what();
  }
}

}  // namespace lockstep::test
