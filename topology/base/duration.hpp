// SPDX-License-Identifier: Apache-2.0
// The one unit of time in interfaces.
#pragma once

#include <chrono>

namespace lockstep {

using Duration = std::chrono::nanoseconds;

}  // namespace lockstep
