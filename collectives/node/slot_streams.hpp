// SPDX-License-Identifier: Apache-2.0
// Holds the streams in which one member's data go from a GPU's memory to the slots of a room, and back.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "collectives/gpu/copy_streams.hpp"
#include "collectives/gpu/device_backend.hpp"
#include "collectives/node/room_memory.hpp"

namespace lockstep::node {

// Pins the room's memory for their copies. One thread at a time may use it.
class SlotStreams : public gpu::CopyStreams {
 public:
  explicit SlotStreams(const RoomMemory& memory) : memory_(memory) {}

  // Pins the memory. Only the first call does it, and the system may refuse.
  void pin() {
    if (!std::exchange(has_tried_to_pin_, true)) pin_ = gpu::backend()->pin(memory_.owner(), memory_.bytes());
  }
  // Returns everything in this room that copies under way may touch, and the streams. It lives while the caller holds
  // it.
  std::vector<std::shared_ptr<const void>> owners() const {
    std::vector<std::shared_ptr<const void>> all{memory_.owner(), pin_};
    for (const auto& stream : streams()) all.emplace_back(stream);
    return all;
  }

 private:
  RoomMemory memory_;
  std::shared_ptr<const void> pin_;
  bool has_tried_to_pin_ = false;
};

}  // namespace lockstep::node
