// SPDX-License-Identifier: Apache-2.0
// Options of strategies in tests: a hang ends, and nothing is logged.
#pragma once

#include <chrono>

#include "runtime/strategy.hpp"

namespace lockstep::test {

inline StrategyOptions quick(std::shared_ptr<CrossDeviceOps> ops = nullptr) {
  return {.wait_limits = WaitLimits{std::chrono::seconds(10), std::chrono::seconds(30)},
          .log = Log(LogLevel::off),
          .cross_device_ops = std::move(ops)};
}

}  // namespace lockstep::test
