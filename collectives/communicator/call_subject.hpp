// SPDX-License-Identifier: Apache-2.0
// Holds the values that members compare besides the counts of a call.
#pragma once

#include <cstdint>

namespace lockstep::detail {

// Holds two hashes for members to compare: of the shapes of a call's tensors, and of the variable that it changes. 0
// means none.
struct CallSubject {
  std::uint64_t layout = 0;
  std::uint64_t variable = 0;
  bool operator==(const CallSubject&) const = default;
};

}  // namespace lockstep::detail
