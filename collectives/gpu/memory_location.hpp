// SPDX-License-Identifier: Apache-2.0
// Finds the owner of the memory at an address.
#pragma once

namespace lockstep::gpu {

// Names the GPU that holds an address, or the host. All memory that the host may read and write counts as the host's:
// pinned and managed memory too.
struct MemoryLocation {
  static constexpr int host = -1;
  int device = host;
  bool on_device() const { return device != host; }
  bool operator==(const MemoryLocation&) const = default;
};

}  // namespace lockstep::gpu
