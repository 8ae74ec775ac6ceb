// SPDX-License-Identifier: Apache-2.0
// Holds the values that members compare besides the counts of a call.
#pragma once

#include <cstdint>

namespace lockstep::detail {

// Holds hashes for members to compare: of the shapes of a call's tensors, of the variable that it changes, of the
// caller's tag (see call_tag_of), and of the merge_calls before it. 0 means none.
struct CallSubject {
  std::uint64_t layout = 0;
  std::uint64_t variable = 0;
  std::uint64_t tag = 0;
  std::uint64_t merges = 0;
  bool operator==(const CallSubject&) const = default;
};

}  // namespace lockstep::detail
