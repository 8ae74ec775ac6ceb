// SPDX-License-Identifier: Apache-2.0
// Names the subject of a call beyond its counts.
#pragma once

#include <cstdint>

namespace lockstep::detail {

// Says more of a call than its counts do, for members to compare: the shapes of its tensors, the variable that it
// changes. 0: nothing.
struct CallSubject {
  std::uint64_t layout = 0;
  std::uint64_t variable = 0;
  bool operator==(const CallSubject&) const = default;
};

}  // namespace lockstep::detail
