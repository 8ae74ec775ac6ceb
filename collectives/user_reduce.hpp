// SPDX-License-Identifier: Apache-2.0
// Describes the user's own reduction for the host, with its type erased.
#pragma once

#include <array>
#include <cstddef>

namespace lockstep {

// Computes target[i] = left[i] op right[i]; the target may be exactly left or right.
struct UserReduce {
  static constexpr std::size_t state_bytes = 48;
  void (*apply)(const void* state, void* target, const void* left, const void* right, std::size_t count) = nullptr;
  alignas(std::max_align_t) std::array<std::byte, state_bytes> state = {};  // a copy of what the function captured
  bool has_state = false;  // false: the function captured nothing, so its type alone tells what it does
};

}  // namespace lockstep
