// SPDX-License-Identifier: Apache-2.0
#include "topology/base/descriptor_limit.hpp"

#include <sys/resource.h>

#include <algorithm>

namespace lockstep {

bool raise_limit() {
  constexpr rlim_t enough = 65'536;  // what goes through all descriptors that there may be would be long at more
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
