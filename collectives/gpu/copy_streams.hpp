// SPDX-License-Identifier: Apache-2.0
// Two streams for each GPU, one for what comes from it and one for what goes to it, so that both directions of its link
// are used at once. For one thread at a time.
#pragma once

#include <vector>

#include "collectives/gpu/device_backend.hpp"

namespace lockstep::gpu {

class CopyStreams {
 public:
  // Made when they are first needed.
  Stream down(int device) { return of(device, 0).get(); }
  Stream up(int device) { return of(device, 1).get(); }
  // What a call copies from one GPU and to another comes after what was begun before in their default streams; nothing
  // where that is the host.
  void begin(int down_from, int up_to);
  // What is under way in them goes on while somebody holds this.
  std::vector<std::shared_ptr<void>> streams() const { return streams_; }

 private:
  const std::shared_ptr<void>& of(int device, std::size_t way);

  std::vector<std::shared_ptr<void>> streams_;  // by device and way
};

}  // namespace lockstep::gpu
