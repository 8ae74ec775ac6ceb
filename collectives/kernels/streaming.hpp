// SPDX-License-Identifier: Apache-2.0
// Tells from which size results are written past the caches. A normal store first reads the line that it writes. For a
// result that the caches cannot hold, this read is a third of the traffic, and useless.
#pragma once

#include <atomic>
#include <cstddef>

namespace lockstep {

// Returns the size of a result, in bytes, from which it is streamed. By default it is the size of the last cache. Only
// tests and benchmarks change it.
std::atomic<std::size_t>& streaming_size();

// Returns the size in bytes of the last cache that a core of this processor can use. If it is unknown, returns a guess
// of 32 MiB.
std::size_t last_cache_size();

}  // namespace lockstep
