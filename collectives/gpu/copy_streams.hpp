// SPDX-License-Identifier: Apache-2.0
// Holds two streams for each GPU, one for copies from it and one for copies to it. With two streams both directions of
// the GPU's link are in use at once.
#pragma once

#include <vector>

#include "collectives/gpu/device_backend.hpp"

namespace lockstep::gpu {

// Owns the streams. One thread at a time may use an object.
class CopyStreams {
 public:
  // Return the stream for copies from (down) or to (up) a GPU, made at the first call. Throw Error device if that
  // fails.
  Stream down(int device) { return of(device, 0).get(); }
  Stream up(int device) { return of(device, 1).get(); }
  // Puts a call's copies from one GPU and to another behind the work that is now in these GPUs' default streams.
  // MemoryLocation::host means no copies that way.
  void begin(int down_from, int up_to);
  // Returns shared ownership of all streams. Copies under way go on as long as somebody holds it.
  std::vector<std::shared_ptr<void>> streams() const { return streams_; }

 private:
  const std::shared_ptr<void>& of(int device, std::size_t way);

  std::vector<std::shared_ptr<void>> streams_;  // two per device: down, up
};

}  // namespace lockstep::gpu
