// SPDX-License-Identifier: Apache-2.0
// Returns the memory of one member's pages and slots to the system once no member reads them any more.
//
// A Runner owns it. Each member writes the last step of its finished call to its header.
#pragma once

#include "collectives/node/room_memory.hpp"

namespace lockstep::node {

// Is used by one thread at a time. It keeps the room's memory alive.
class SlotPages {
 public:
  explicit SlotPages(const RoomMemory& memory) : memory_(memory), mine_(&memory_.header_of(memory.index())) {}

  // Tells the others that this member has finished its calls up to this step, and reads none of these steps any more.
  void note_finished(StepNumber last) { mine_->finished.store(last, std::memory_order_release); }
  // Returns the memory to the system. `last` is the last step that this member has published, and it is in no call.
  // Returns false if another member may still read there. If there are GPUs, it keeps the memory, which may be pinned.
  bool give_back(StepNumber last) noexcept;

 private:
  void give_back_range(const std::byte* first, std::size_t bytes) const noexcept;

  RoomMemory memory_;
  RoomMemberHeader* mine_;
};

}  // namespace lockstep::node
