// SPDX-License-Identifier: Apache-2.0
// From which size on results are written past the caches. A normal store first reads the line it writes; for
// a result that will be thrown out of the caches anyway that is a third of the traffic for nothing.
#pragma once

#include <atomic>
#include <cstddef>

namespace lockstep {

// In bytes of the result. Found from the last cache's size at the first call; only tests and benches change it.
std::atomic<std::size_t>& streaming_size();

// The last cache that this processor can use, in bytes.
std::size_t last_cache_size();

}  // namespace lockstep
