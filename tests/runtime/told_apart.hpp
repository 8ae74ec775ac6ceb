// SPDX-License-Identifier: Apache-2.0
// For tests of several replicas of several ranks: values whose sum shows in which order they were added.
#pragma once

#include <cmath>

#include "runtime/strategy.hpp"

namespace lockstep::test {

inline StrategyOptions quiet() { return {.log = Log(LogLevel::off)}; }

inline float value_of(int replica, std::size_t i) {
  return std::ldexp(static_cast<float>((replica * 31 + static_cast<int>(i) * 17) % 101),
                    (replica * 7 + static_cast<int>(i)) % 30);
}

}  // namespace lockstep::test
