// SPDX-License-Identifier: Apache-2.0
// The strategy of a program that has chosen none: one replica, this thread. Code can be written against get_strategy()
// and does the same under it as without.
#pragma once

#include "runtime/strategy.hpp"

namespace lockstep {

// There is one, for ever.
Strategy& default_strategy();

}  // namespace lockstep
