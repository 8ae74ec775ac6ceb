// SPDX-License-Identifier: Apache-2.0
// Reads and raises the limit of open descriptors (RLIMIT_NOFILE).
#include "topology/base/descriptor_limit.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace lockstep {

bool raise_limit() {
  constexpr rlim_t enough = 65'536;  // programs that walk through all possible descriptors would take long with more
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return false;
  limit.rlim_cur = std::min(limit.rlim_max, std::max(2 * limit.rlim_cur, enough));
  return ::setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

std::size_t descriptor_limit() {
  rlimit limit{};
  return ::getrlimit(RLIMIT_NOFILE, &limit) == 0 ? static_cast<std::size_t>(limit.rlim_cur) : 0;
}

}  // namespace lockstep
