// SPDX-License-Identifier: Apache-2.0
// Holds the strategy of a program that has chosen none: one replica, which is the calling thread. Code written against
// get_strategy() behaves the same with and without a strategy.
#pragma once

#include "runtime/strategy.hpp"

namespace lockstep {

// Returns the only default strategy. It is never destroyed.
Strategy& default_strategy();

}  // namespace lockstep
