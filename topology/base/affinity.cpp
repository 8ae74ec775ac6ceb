// SPDX-License-Identifier: Apache-2.0
// Calls the scheduler.
#include "topology/base/affinity.hpp"

#include <sched.h>

#include <cstddef>

namespace lockstep {

std::vector<int> bound_processors() {
  cpu_set_t set;
  std::vector<int> processors;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return processors;
  for (int processor = 0; processor < CPU_SETSIZE; ++processor) {
    if (CPU_ISSET(static_cast<std::size_t>(processor), &set)) processors.push_back(processor);
  }
  return processors;
}

bool bind_to_processors(const std::vector<int>& processors) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int processor : processors) {
    if (processor < CPU_SETSIZE) CPU_SET(static_cast<std::size_t>(processor), &set);
  }
  return ::sched_setaffinity(0, sizeof set, &set) == 0;
}

}  // namespace lockstep
