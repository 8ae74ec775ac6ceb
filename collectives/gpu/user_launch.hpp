// SPDX-License-Identifier: Apache-2.0
// Describes the user's own reduction for GPUs, with its type erased.
#pragma once

#include <array>
#include <cstddef>

#include "collectives/gpu/stream.hpp"

namespace lockstep::gpu {

// Puts out[i] = left[i] op right[i] into a stream of the current GPU; out may be exactly left or right.
struct UserLaunch {
  static constexpr std::size_t state_bytes = 48;
  void (*put)(const void* state, const void* left, const void* right, void* out, std::size_t count,
              Stream stream) = nullptr;
  alignas(std::max_align_t) std::array<std::byte, state_bytes> state = {};  // a copy of what the launcher captured
};

}  // namespace lockstep::gpu
