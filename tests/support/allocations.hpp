// SPDX-License-Identifier: Apache-2.0
// Counts allocations. Whoever includes this links test_allocations, through which all of the program then go.
#pragma once

#include <cstddef>

namespace lockstep::test {

// By this thread, so far.
std::size_t allocations_made();
// By all threads, and not freed.
std::ptrdiff_t allocations_living();
// In these.
std::ptrdiff_t bytes_living();

}  // namespace lockstep::test
