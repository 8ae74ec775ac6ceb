// SPDX-License-Identifier: Apache-2.0
// Lays out the memory of messages.
#include "collectives/node/message_memory.hpp"

#include <algorithm>
#include <bit>

namespace lockstep::node {

// The long ring holds more than the second cache of a core, so that what is written again has left it. A line goes
// slowly from one second cache to another: on a Zen 4 (2026-11-30) two cores of one last cache exchanged 128 KiB in 22
// us through rings of 128 KiB, in 9 us through 1 MiB, and in 7 us through 2 MiB. All long rings together stay within
// 128 MiB, for as long as they are 4 KiB or more.
MessageLayout::MessageLayout(int members) {
  constexpr std::size_t most_short = 8U << 10U;  // a quarter of a first cache, a guess
  constexpr std::size_t most = 2U << 20U;
  constexpr std::size_t least = 4U << 10U;
  constexpr std::size_t in_all = 128U << 20U;
  const auto n = static_cast<std::size_t>(members);
  cells = members <= 64 ? MessageMemory::most_cells : 8;
  ring = std::bit_floor(std::clamp(in_all / (n * n), least, most));
  short_ring = std::min(ring, most_short);
  stride = sizeof(MessageReceipts) + cells * sizeof(MessageCell) + ring + short_ring;
  bytes = n * n * stride;
}

MessageMemory::MessageMemory(const RoomMemory& room, int from, int to) {
  const MessageLayout layout(room.size());
  const auto pair =
      static_cast<std::size_t>(from) * static_cast<std::size_t>(room.size()) + static_cast<std::size_t>(to);
  std::byte* const begin = room.owner().get() + Layout(room.size()).messages + pair * layout.stride;
  cells_ = layout.cells;
  ring_bytes_ = layout.ring;
  short_ring_bytes_ = layout.short_ring;
  receipts_ = reinterpret_cast<MessageReceipts*>(begin);
  first_cell_ = reinterpret_cast<MessageCell*>(begin + sizeof(MessageReceipts));
  ring_ = begin + sizeof(MessageReceipts) + layout.cells * sizeof(MessageCell);
}

}  // namespace lockstep::node
